// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
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

// TestRefusedPodsAsExplained: doctor and "kubectl tandem explain" agree whether the empty node admits a
// refused pod. Each NUMA node has four GPUs, and four VFs of each of two pools.
func TestRefusedPodsAsExplained(t *testing.T) {
	n := Node{Tree: topology.Assemble(nil, nil, nil)}
	status := &coordinator.Status{}
	for name, kind := range map[string]device.Kind{
		"a.com/gpu": device.GPU, "a.com/x": device.VF, "a.com/y": device.VF,
	} {
		r := coordinator.Resource{Name: name, Kind: string(kind), Connected: true}
		pool := model.Resource{Name: name, Kind: model.VF}
		for i := range 8 {
			numa := topology.Node(i / 4)
			id := fmt.Sprint(name, i)
			r.Devices = append(r.Devices, coordinator.Device{ID: id, NUMA: numa, State: "free"})
			pool.Devices = append(pool.Devices, deviceOn(id, topology.Address{}, numa))
		}
		if kind == device.GPU {
			n.GPUs = pool.Devices
		} else {
			n.VFs = append(n.VFs, pool)
		}
		status.Resources = append(status.Resources, r)
	}
	n.status.Resources = status.Resources
	for name, c := range map[string]struct {
		scope      string
		containers []map[string]int
	}{
		"VFs of one of two pools":   {"container", []map[string]int{{"a.com/gpu": 8, "a.com/x": 8}}},
		"two containers, scope pod": {"pod", []map[string]int{{"a.com/gpu": 4, "a.com/x": 4}, {"a.com/gpu": 5}}},
		"two containers":            {"container", []map[string]int{{"a.com/gpu": 6}, {"a.com/gpu": 6}}},
		"init container":            {"container", []map[string]int{{"a.com/gpu": 6}, {"a.com/gpu": 6}}},
	} {
		n.settings = &settings{}
		n.settings.Policy, n.settings.Scope = restricted, c.scope
		pod := &corev1.Pod{}
		for _, requests := range c.containers {
			limits := corev1.ResourceList{}
			for resourceName, count := range requests {
				limits[corev1.ResourceName(resourceName)] = *resource.NewQuantity(int64(count), resource.DecimalSI)
			}
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
				Resources: corev1.ResourceRequirements{Limits: limits, Requests: limits},
			})
		}
		if name == "init container" {
			pod.Spec.InitContainers, pod.Spec.Containers = pod.Spec.Containers[:1], pod.Spec.Containers[1:]
		}
		explained := coordinator.ExplainRejection(pod, status, kubelet.Reading[[]coordinator.Decision]{},
			kubelet.Read(n.settings.Settings, nil))
		var pods RefusedPods
		pods.Add(pod)
		n.Refused.Pods = RefusedPods{}
		if err := n.Refused.Pods.Set(pods.Flags()[0]); err != nil { // as kubectl tandem doctor hands pods over
			t.Fatal(err)
		}
		if f := n.judgeRefused(); (f.always == 0) != explained.FitsEmpty {
			t.Errorf("%s: %s; explain: the empty node admits it: %v", name, f.shapes, explained.FitsEmpty)
		}
	}
}
