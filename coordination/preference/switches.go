// SPDX-License-Identifier: Apache-2.0

package preference

import "github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"

// Switches are the switches of a node that have both GPUs and VFs: the devices of each kind.
type Switches [][2]devicemanager.Set

// Pairs returns the number of pairs on one switch that devices make.
func (s Switches) Pairs(of devicemanager.Set) int {
	sum := 0
	for i := range s {
		sum += min(of.Common(s[i][devicemanager.GPU]), of.Common(s[i][devicemanager.VF]))
	}
	return sum
}

// Stranded returns the number of pairs that free devices cannot make because they share no switch.
func (s Switches) Stranded(n *devicemanager.Node, free devicemanager.Set) int {
	pairs := min(free.Common(n.OfKind[devicemanager.GPU]), free.Common(n.OfKind[devicemanager.VF]))
	return pairs - s.Pairs(free)
}
