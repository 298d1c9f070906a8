// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
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

// TestManyNodes: with devices on 48 NUMA nodes a question is answered at once. The plan has pairs on one
// switch, of all free devices, and the decision says that no NUMA nodes are predicted.
func TestManyNodes(t *testing.T) {
	for _, source := range []intent.Source{"", intent.PodsAPI} {
		a := newAdmission(t, "oci-mi300x-derived", 1, true, 1)
		var parts []device.Device
		for i := range 48 {
			part := a.all[gpus][i%len(a.all[gpus])]
			part.ID, part.NUMA = fmt.Sprint(part.ID, "-", i), topology.Node(i)
			parts = append(parts, part)
		}
		a.all[gpus], a.source = parts, source
		a.freeAll()
		a.announce()
		pod := a.add("pod")
		a.pods[pod]["c"] = kubelet.Devices{}
		a.tell(pod, container{"c", wish{2, 2}})
		ids, why := a.ask(vfs, 1, 2)
		wantWords(t, why, "NUMA nodes are not predicted: more than 8 have devices")
		pairs := a.coordinator.current().open.Plan.choice.Pairs
		far := slices.ContainsFunc(pairs, func(p placement.Pair) bool { return !p.Distance.Level.Direct() })
		if len(ids) != 2 || len(pairs) != 2 || far {
			t.Errorf("source %q: %v, planned %v", source, ids, pairs)
		}
	}
}

// share gives the GPUs four replicas each under a rule. Replicas of the first GPU are taken, and of the VFs
// of NUMA node 0 those that are far from this GPU.
func (a *admission) share(rule device.Replicas, used int) {
	a.t.Helper()
	originals := a.all[gpus]
	var shared []device.Device
	for _, d := range originals {
		for n := range 4 {
			one := d
			one.ID = fmt.Sprintf("%s::%d", d.ID, n)
			shared = append(shared, one)
		}
	}
	a.all[gpus] = shared
	tree := a.coordinator.current().tree
	a.coordinator.startAt(tree, a.coordinator.now)
	a.freeAll()
	a.announce()
	announcement := device.Announcement{Devices: shared, Replicas: rule}
	if err := a.coordinator.Announce(gpus, device.GPU, announcement); err != nil {
		a.t.Fatal(err)
	}
	_, others := a.split(a.aligned(vfs, []int{0}), originals[0].Address)
	for n := range used {
		owner := a.pending(fmt.Sprint("owner-", n), wish{1, 0}).Pod
		a.take(owner, gpus, []string{fmt.Sprintf("%s::%d", originals[0].ID, n)})
		a.keep(owner)
	}
	rest := a.pending("rest", wish{0, len(others)}).Pod
	a.take(rest, vfs, ids(others))
	a.keep(rest)
}

// TestStrictPodOfReplicas: a rule for shared GPUs refuses no strict pod that has a near pair among the free
// devices.
func TestStrictPodOfReplicas(t *testing.T) {
	t.Parallel()
	for _, rule := range []device.Replicas{"", device.Packed, device.Distributed} {
		a := told(t)
		a.share(rule, 1)
		strict := a.pending("strict", wish{1, 1})
		strict.Alignment = intent.Required
		a.serve(strict.Pod, gpus, 0, 1)
		a.serve(strict.Pod, vfs, 0, 1)
	}
}

// TestTwoReplicas: a pod without required alignment that asks for two shared GPUs gets two GPUs under the
// rule distributed, although two replicas of one GPU have near VFs.
func TestTwoReplicas(t *testing.T) {
	t.Parallel()
	a := told(t)
	a.share(device.Distributed, 0)
	a.pending("asks", wish{2, 2})
	chosen, why := a.ask(gpus, 0, 2)
	one, _ := topology.CutReplica(chosen[0])
	other, _ := topology.CutReplica(chosen[1])
	if one == other {
		t.Errorf("the pod gets %v: %s", chosen, why)
	}
}
