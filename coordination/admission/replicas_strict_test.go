// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
)

// TestStrictPodOfReplicas: the rule of NVIDIA's driver for shared GPUs, distributed by default, refuses no
// strict pod that has a near pair among the free devices.
func TestStrictPodOfReplicas(t *testing.T) {
	t.Parallel()
	for _, rule := range []device.Replicas{"", device.Packed, device.Distributed} {
		a := told(t)
		a.source = intent.PodsAPI
		var shared []device.Device
		for _, d := range a.all[gpus] {
			for n := range 4 {
				one := d
				one.ID = fmt.Sprintf("%s::%d", d.ID, n)
				shared = append(shared, one)
			}
		}
		a.all[gpus] = shared
		a.coordinator.startAt(a.coordinator.current().tree, a.coordinator.now)
		a.freeAll()
		a.announce()
		announcement := device.Announcement{Devices: shared, Replicas: rule}
		if err := a.coordinator.Announce(gpus, device.GPU, announcement); err != nil {
			t.Fatal(err)
		}
		// a replica of a GPU is taken, and all VFs of the NUMA node but those near that GPU
		tree := a.coordinator.current().tree
		used, near := shared[0], ""
		var others []string
		for _, d := range a.aligned(vfs, []int{0}) {
			if tree.Distance(used.Address, d.Address).Level.Direct() {
				near = d.ID
			} else {
				others = append(others, d.ID)
			}
		}
		owner := a.pending("owner", wish{1, 0}).Pod
		a.take(owner, gpus, []string{used.ID})
		a.keep(owner)
		rest := a.pending("rest", wish{0, len(others)}).Pod
		a.take(rest, vfs, others)
		a.keep(rest)

		strict := a.pending("strict", wish{1, 1})
		strict.Alignment = intent.Required
		pod := strict.Pod
		refusal := ""
		var has []string
		for _, name := range []string{gpus, vfs} {
			ids, why := a.ask(name, 0, 1)
			has = append(has, ids...)
			t.Logf("rule %q: %v: %s", rule, ids, why)
			refusal = a.take(pod, name, ids)
			if refusal != "" {
				break
			}
		}
		if refusal != "" {
			t.Errorf("rule %q: %v is refused, although the free %s and %v are near: %s", rule, has,
				near, slices.DeleteFunc(ids(a.aligned(gpus, []int{0})), func(id string) bool {
					return !tree.Distance(a.address(gpus, id), a.address(vfs, near)).Level.Direct()
				}), refusal)
		}
	}
}
