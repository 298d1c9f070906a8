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

// VFs that are asked for first go where the container's CPUs will be: the GPUs will too. Where the VFs that
// are offered tell the nodes, the CPUs decide nothing.
func TestVFsGoWhereTheCPUsAre(t *testing.T) {
	t.Parallel()
	set := func(cpus ...int) topology.CPUSet {
		set := topology.CPUSet{}
		for _, cpu := range cpus {
			set[cpu] = true
		}
		return set
	}
	all := map[int]topology.CPUSet{0: set(0, 1, 2, 3), 1: set(4, 5, 6, 7)}
	rest := set(1, 2, 3, 4, 5, 6, 7) // 0 is the system's
	for name, c := range map[string]struct {
		cpus        int
		exclusive   topology.CPUSet
		allocatable topology.CPUSet
		err         error
		hinted      bool // the VFs have NUMA nodes
		want        int  // NUMA node
		asked       bool
	}{
		"none of its own":            {cpus: 0, allocatable: rest, want: 0},
		"as many as either has":      {cpus: 3, allocatable: rest, want: 0, asked: true},
		"more than the first has":    {cpus: 4, allocatable: rest, want: 1, asked: true},
		"the first has given some":   {cpus: 2, exclusive: set(1, 2), allocatable: rest, want: 1, asked: true},
		"the second has given some":  {cpus: 2, exclusive: set(4, 5, 6), allocatable: rest, want: 0, asked: true},
		"more than either has":       {cpus: 4, exclusive: set(4), allocatable: rest, want: 0, asked: true},
		"the policy is not static":   {cpus: 4, want: 0, asked: true},
		"the kubelet does not say":   {cpus: 4, err: errors.New("no such method"), want: 0, asked: true},
		"all of both, as they stand": {cpus: 8, allocatable: set(0, 1, 2, 3, 4, 5, 6, 7), want: 0, asked: true},
		"the VFs tell the node":      {cpus: 4, allocatable: rest, hinted: true, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAdmission(t, "oci-mi300x-derived", 4, !c.hinted, 1)
			a.source = intent.PodsAPI
			pod := a.pending("pod", wish{2, 2})
			pod.Containers[0].CPUs = c.cpus
			a.pods[pod.Pod]["c"] = kubelet.Devices{}
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
			chosen, why := a.ask(vfs, 0, 2)
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
