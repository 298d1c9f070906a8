// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// TestShapesOfManyNodes: with the option max-allowable-numa-nodes, which --drop-in prints on such a
// machine, the kubelet admits containers on a machine with ten NUMA nodes.
func TestShapesOfManyNodes(t *testing.T) {
	n := Node{Tree: topology.Assemble(nil, nil, nil)}
	vfs := model.Resource{Kind: model.VF}
	for i := range 10 {
		at := topology.Address{Bus: uint8(i)}
		n.GPUs = append(n.GPUs, deviceOn(fmt.Sprint("gpu", i), at, topology.Node(i)))
		vf := topology.Address{Bus: uint8(i), Function: 1}
		vfs.Devices = append(vfs.Devices, deviceOn(fmt.Sprint("vf", i), vf, topology.Node(i)))
	}
	n.VFs = []model.Resource{vfs}
	k := &settings{}
	n.settings = k
	k.Policy, k.Scope, k.CPUPolicy, k.MemoryPolicy = restricted, scopeContainer, "none", "None"
	k.NUMANodes = 10
	k.PolicyOptions = map[string]string{maxNodesOption: "10"}
	if refusals := n.Refusals(); len(refusals) > 0 {
		t.Fatalf("the kubelet does not start: %v", refusals)
	}
	if s := n.readShapes(); len(s.refused) > 0 {
		t.Errorf("refused shapes %s, want none", shapeList(s.refused))
	}
}

// deviceOn returns a device with the hint of a NUMA node.
func deviceOn(id string, address topology.Address, numa topology.NUMANode) model.Device {
	return model.Device{Device: placement.Device{ID: id, Address: address}, NUMA: numa}
}
