// SPDX-License-Identifier: Apache-2.0

package managers

import (
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"

	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// store is what the managers ask for the NUMA nodes of the container that they give CPUs and memory.
type store struct {
	policy string
	hint   topologymanager.TopologyHint
}

// set notes what the Topology Manager has made of the hints for the next container. Where any nodes will do
// it means all nodes, but under single-numa-node and none says nothing of them.
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

// GetPolicy is asked for its name alone.
func (s *store) GetPolicy() topologymanager.Policy {
	if s.policy == topologymanager.PolicySingleNumaNode {
		return topologymanager.NewSingleNumaNodePolicy(nil, topologymanager.PolicyOptions{})
	}
	return topologymanager.NewNonePolicy()
}

// Name is that of the scope, for which the managers do not ask.
func (s *store) Name() string { return topologymanager.ContainerTopologyScope }
