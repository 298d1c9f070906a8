// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
)

// VFs without a NUMA node that are asked for first go where the container's CPUs will be: the GPUs will too.
func TestVFsGoWhereTheCPUsAre(t *testing.T) {
	all := map[int]topology.CPUSet{
		0: {0: true, 1: true, 2: true, 3: true}, 1: {4: true, 5: true, 6: true, 7: true},
	}
	// 0 is the system's
	allocatable := topology.CPUSet{1: true, 2: true, 3: true, 4: true, 5: true, 6: true, 7: true}
	for name, c := range map[string]struct {
		cpus        int
		exclusive   topology.CPUSet
		allocatable topology.CPUSet
		err         error
		want        int // NUMA node
		asked       bool
	}{
		"none of its own":           {0, nil, allocatable, nil, 0, false},
		"as many as either has":     {3, nil, allocatable, nil, 0, true},
		"more than the first has":   {4, nil, allocatable, nil, 1, true},
		"the first has given some":  {2, topology.CPUSet{1: true, 2: true}, allocatable, nil, 1, true},
		"the second has given some": {2, topology.CPUSet{4: true, 5: true, 6: true}, allocatable, nil, 0, true},
		"more than either has":      {4, topology.CPUSet{4: true}, allocatable, nil, 0, true},
		"the policy is not static":  {4, nil, nil, nil, 0, true},
		"the kubelet does not say":  {4, nil, nil, errors.New("no such method"), 0, true},
		"all of both, as they stand": {8, nil,
			topology.CPUSet{0: true, 1: true, 2: true, 3: true, 4: true, 5: true, 6: true, 7: true}, nil, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAdmission(t, "oci-mi300x-derived", 4, true, 1)
			pod := kubelet.Pod{Namespace: "team", Name: "pod"}
			a.source, a.order = intent.PodsAPI, []kubelet.Pod{pod}
			a.pods[pod] = map[string]kubelet.Devices{"c": {}}
			a.specs = []intent.Pod{{Pod: pod, UID: "uid", Containers: []intent.Container{
				{Name: "c", Requests: map[string]int{gpus: 2, vfs: 2}, CPUs: c.cpus},
			}}}
			sourcesOf(a.coordinator).look = func(ctx context.Context) (kubelet.View, error) {
				view, err := a.look(ctx)
				view.Exclusive = c.exclusive
				return view, err
			}
			asked := false
			sourcesOf(a.coordinator).allocatableCPUs = func(context.Context) (topology.CPUSet, error) {
				asked = true
				return c.allocatable, c.err
			}
			sourcesOf(a.coordinator).nodeCPUs = func() (map[int]topology.CPUSet, error) { return all, nil }
			chosen, why := a.prefer(vfs, ids(a.all[vfs]), nil, 2)
			if asked != c.asked {
				t.Fatalf("CPUs asked for: %t", asked)
			}
			for _, id := range chosen {
				d, ok := a.coordinator.current().tree.Device(a.address(vfs, id))
				if !ok || d.NUMA != topology.Node(c.want) {
					t.Errorf("%s is on node %v, want %d: %s", id, d.NUMA, c.want, why)
				}
			}
		})
	}
}

// Where the devices that are offered tell the nodes, the CPUs decide nothing.
func TestCPUsOfHintedDevices(t *testing.T) {
	a := newAdmission(t, "oci-mi300x-derived", 4, false, 1)
	pod := kubelet.Pod{Namespace: "team", Name: "pod"}
	a.source, a.order = intent.PodsAPI, []kubelet.Pod{pod}
	a.pods[pod] = map[string]kubelet.Devices{"c": {}}
	a.specs = []intent.Pod{
		{Pod: pod, UID: "uid",
			Containers: []intent.Container{{Name: "c", Requests: map[string]int{vfs: 1}, CPUs: 1}}},
	}
	sourcesOf(a.coordinator).allocatableCPUs = func(context.Context) (topology.CPUSet, error) {
		t.Error("the kubelet is asked for CPUs")
		return nil, nil
	}
	a.prefer(vfs, ids(a.all[vfs][:2]), nil, 1)
}
