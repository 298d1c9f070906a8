// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/topology"
)

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
