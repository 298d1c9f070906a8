// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// The plugin of the VFs starts anew with another name for them. Those of the old name, which nobody can get
// any more, do not count as free: a GPU is chosen where a VF of the new name is.
func TestRenamedResource(t *testing.T) {
	t.Parallel()
	a := untold(t)
	a.renameVFs()
	local := a.aligned(gpus, []int{0})
	last := local[len(local)-1]
	_, taken := a.split(a.aligned(anew, []int{0}), last.Address)
	greedy := a.add("greedy")
	if refusal := a.take(greedy, anew, ids(taken)); refusal != "" {
		t.Fatal(refusal)
	}
	a.keep(greedy)
	a.add("pod")
	chosen, why := a.ask(gpus, 0, 1)
	if !slices.Equal(chosen, []string{last.ID}) {
		t.Errorf("chosen %v, though only beside %s a VF is free: %s", chosen, last.ID, why)
	}
}

// anew is another name of the VFs.
const anew = "nvidia.com/anew"

// renameVFs starts the plugin of the VFs anew with another name for all of them.
func (a *admission) renameVFs() {
	a.t.Helper()
	a.coordinator.Leave(vfs)
	a.all[anew] = a.all[vfs]
	delete(a.all, vfs)
	a.freeAll()
	if err := a.coordinator.Announce(anew, device.VF, device.Announcement{Devices: a.all[anew]}); err != nil {
		a.t.Fatal(err)
	}
}

// heldBeforeRename returns an admission in which a pod has a VF under the name before, and the next pod
// requests one under the new name.
func heldBeforeRename(t *testing.T) (a *admission, owner kubelet.Pod, held []string) {
	t.Helper()
	a = told(t)
	owner, held = a.start("owner", vfs)
	a.renameVFs()
	a.pending("next", wish{}).Containers[0].Requests = map[string]int{anew: 1}
	return a, owner, held
}

// A container has a VF under the name before. The kubelet counts by name and offers the VF under the new one:
// the VF is not chosen, and refused while its container lives.
func TestHeldUnderTheNameBefore(t *testing.T) {
	t.Parallel()
	a, owner, held := heldBeforeRename(t)
	if chosen, why := a.ask(anew, 0, 1); slices.Equal(chosen, held) {
		t.Errorf("%v, which a container has, is chosen: %s", chosen, why)
	}
	for _, d := range devicesOf(a.coordinator.Resources()) {
		if d.GetDevice().GetId() == held[0] && (!d.GetAllocated() || d.GetOwner().GetPod() != "owner") {
			t.Errorf("the holder of %s is %v", held[0], d.GetOwner())
		}
	}
	_, refusal := a.allocated(anew, held)
	if want := "another container has it as " + vfs; !strings.Contains(refusal, want) {
		t.Errorf("refusal %q, want %q", refusal, want)
	}
	if err := os.Remove(kubelet.CheckpointPath(a.kubeletDir)); err != nil {
		t.Fatal(err)
	}
	if _, refusal := a.allocated(anew, held); refusal != "" {
		t.Errorf("the kubelet's records are unknown, and the device is refused: %q", refusal)
	}
	a.record()
	a.remove(owner)
	if _, refusal := a.allocated(anew, held); refusal != "" {
		t.Errorf("its pod has ended: %q", refusal)
	}
}

// A kubelet starts without its records: what a container of a listed pod has under the name before is refused
// until the pod ends.
func TestHeldUnderTheNameBeforeWithoutRecords(t *testing.T) {
	t.Parallel()
	a, owner, held := heldBeforeRename(t)
	a.ask(anew, 0, 1)
	sourcesOf(a.coordinator).life = func() string { return "a later kubelet" }
	delete(a.recordedPods, owner)
	a.record()
	_, refusal := a.allocated(anew, held)
	if want := "another container has it as " + vfs; !strings.Contains(refusal, want) {
		t.Errorf("refusal %q, want %q", refusal, want)
	}
	a.remove(owner)
	if _, refusal := a.allocated(anew, held); refusal != "" {
		t.Errorf("its pod has ended: %q", refusal)
	}
}

// The kubelet rejects a pod after an Allocate, writes nothing down, and lists the pod a moment longer: the
// device of the Allocate is nobody's under another name.
func TestRejectedUnderTheNameBefore(t *testing.T) {
	t.Parallel()
	a := told(t)
	a.record()
	held, _ := a.serve(a.pending("owner", wish{0, 1}).Pod, vfs, 0, 1)
	a.renameVFs()
	a.pending("next", wish{}).Containers[0].Requests = map[string]int{anew: 1}
	if _, refusal := a.allocated(anew, held); refusal != "" {
		t.Errorf("nobody has it: %q", refusal)
	}
}
