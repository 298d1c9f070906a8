// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/device"
)

// The plugin of the VFs starts anew with another name for them. Those of the old name, which nobody can get
// any more, do not count as free: a GPU is chosen where a VF of the new name is.
func TestRenamedResource(t *testing.T) {
	t.Parallel()
	const anew = "nvidia.com/anew"
	a := told(t)
	a.source = ""
	a.coordinator.Leave(vfs)
	a.all[anew] = a.all[vfs]
	delete(a.all, vfs)
	a.freeAll()
	if err := a.coordinator.Announce(anew, device.VF, device.Announcement{Devices: a.all[anew]}); err != nil {
		t.Fatal(err)
	}
	local := a.aligned(gpus, []int{0})
	last := local[len(local)-1]
	tree := a.coordinator.current().tree
	taken := ids(slices.DeleteFunc(a.aligned(anew, []int{0}), func(d device.Device) bool {
		return tree.Distance(last.Address, d.Address).Level.Direct()
	}))
	greedy := a.add("greedy")
	if refusal := a.take(greedy, anew, taken); refusal != "" {
		t.Fatal(refusal)
	}
	a.recordedPods[greedy] = a.pods[greedy]
	a.record()
	a.add("pod")
	chosen, why := a.ask(gpus, 0, 1)
	if !slices.Equal(chosen, []string{last.ID}) {
		t.Errorf("chosen %v, though only beside %s a VF is free: %s", chosen, last.ID, why)
	}
}
