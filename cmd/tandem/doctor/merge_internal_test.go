// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
)

// TestMergeOfEachResource: each pool of VFs is a resource with hints of its own, also under policies that try
// no combinations: doctor's own remedy is another one.
func TestMergeOfEachResource(t *testing.T) {
	n := Node{Tree: topology.Assemble(nil, nil, nil)}
	n.VFs = []model.Resource{{Name: "x.y/a"}, {Name: "x.y/b"}, {Name: "x.y/excluded"}}
	for i := range 8 {
		n.GPUs = append(n.GPUs, deviceOn("gpu", topology.Address{}, topology.Node(i)))
		for k, on := range []topology.NUMANode{topology.Node(i), topology.Node(i), {}} {
			n.VFs[k].Devices = append(n.VFs[k].Devices, deviceOn("vf", topology.Address{}, on))
		}
	}
	k := &settings{}
	n.settings = k
	k.Policy, k.CPUPolicy, k.MemoryPolicy = restricted, "none", "None"
	n.shapes.emptyNode = n.emptyUnder(model.Restricted)
	found := runChecks(&n, ofPlugins, shapeChecks[len(shapeChecks)-1])
	if len(found) != 1 || !slices.Equal(found[0].Evidence, []string{
		"GPUs: hints over 8 NUMA nodes", "VFs of x.y/a: hints over 8 NUMA nodes",
		"VFs of x.y/b: hints over 8 NUMA nodes",
	}) || !strings.HasSuffix(found[0].Fix[0], "about 98 µs") {
		t.Errorf("found %+v", found)
	}
	for policy, want := range map[string]int{"": 0, "none": 1, "best-effort": 1, "single-numa-node": 1} {
		k.Policy = policy
		n.shapes.emptyNode = n.emptyUnder(model.Restricted)
		if found := runChecks(&n, ofPlugins, shapeChecks[len(shapeChecks)-1]); len(found) != want {
			t.Errorf("policy %s: found %+v", policy, found)
		}
	}
}
