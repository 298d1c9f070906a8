// SPDX-License-Identifier: Apache-2.0

package hints

// Hint is a set of NUMA nodes with which a manager of the kubelet can serve a container (TopologyHint in
// pkg/kubelet/cm/topologymanager). Nodes is 0 for a hint without affinity.
type Hint struct {
	Nodes     Mask
	Preferred bool
}

// List are the hints of one resource that the kubelet's CPU or memory manager has computed itself. As with
// the kubelet's, nil is no preference, and an empty list says that no set of nodes will do. A hint without
// affinity stands alone.
type List []Hint

// indifferent reports whether any nodes will do.
func (l List) indifferent() bool { return l == nil || len(l) == 1 && l[0] == Hint{Preferred: true} }

func (l List) nodes() Mask {
	var m Mask
	for _, h := range l {
		m |= h.Nodes
	}
	return m
}
