// SPDX-License-Identifier: Apache-2.0

package managers

import (
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"

	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// store tells the managers the NUMA nodes of the container in admission.
type store struct {
	policy string
	hint   topologymanager.TopologyHint
}

// set sets the Topology Manager's merged hint for the next container. An unrestricted hint means all nodes,
// but has no nodes under the policies single-numa-node and none.
func (s *store) set(best hints.Hint, all []int) error {
	s.hint = topologymanager.TopologyHint{Preferred: best.Preferred}
	numbers := best.Nodes.Numbers()
	if numbers == nil {
		if s.policy == topologymanager.PolicySingleNumaNode || s.policy == topologymanager.PolicyNone {
			return nil
		}
		numbers = all
	}
	mask, err := bitmask.NewBitMask(numbers...)
	s.hint.NUMANodeAffinity = mask
	return err
}

// GetPolicy returns a policy of the right name; the managers read nothing else.
func (s *store) GetPolicy() topologymanager.Policy {
	if s.policy == topologymanager.PolicySingleNumaNode {
		return topologymanager.NewSingleNumaNodePolicy(nil, topologymanager.PolicyOptions{})
	}
	return topologymanager.NewNonePolicy()
}

// Name returns the container scope; the managers do not read the name.
func (s *store) Name() string { return topologymanager.ContainerTopologyScope }
