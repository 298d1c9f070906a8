// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/pairs"
)

// Before PodResources shows the container, an Allocate of other GPUs at once after its VFs shows that the VFs
// may be of the container of either GPUs: the pairs file names no GPU. Without the checkpoint that shows
// unfinished allocation the GPUs are the next container's.
func TestPairsFileWithGPUsInDoubt(t *testing.T) {
	t.Parallel()
	for unreadable, want := range map[bool]int{false: 0, true: 2} {
		a, dir := newPaired(t)
		first, second, vf := a.all[gpus][2], a.all[gpus][3], a.all[vfs][2]
		a.allocated(gpus, []string{first.ID, second.ID})
		a.now = a.now.Add(time.Millisecond)
		a.allocated(vfs, []string{vf.ID})
		file := filepath.Join(dir, "c.json")
		a.pair(vf, file)
		if unreadable {
			a.kubeletDir = t.TempDir()
		}
		a.allocated(gpus, []string{a.all[gpus][1].ID})
		got, err := pairs.Read(file)
		named := slices.DeleteFunc(slices.Clone(got.Pairs), func(p pairs.Pair) bool { return p.GPU == nil })
		if err != nil || len(named) != want || len(got.Pairs) != max(1, want) || got.Pairs[0].VF.ID != vf.ID {
			t.Errorf("unreadable %t: %+v, %v; want VF %s with %d GPUs", unreadable, got.Pairs, err, vf.ID, want)
		}
	}
}

// newPaired returns an admission with a folder of pairs files.
func newPaired(t *testing.T) (a *admission, dir string) {
	t.Helper()
	a = newAdmission(t, "oci-mi300x-derived", 1, true, 1)
	a.keepCheckpoint()
	return a, a.movePairs()
}

// pair has the plugin ask for a pairs file with the VF that was just given.
func (a *admission) pair(vf device.Device, file string) {
	all := []pairs.VF{{ID: vf.ID, Address: vf.Address, Resource: vfs}}
	_, _, _ = a.coordinator.Pair(vfs, []string{vf.ID}, file, all)
}

// giveVF gives a VF to a container of the only pod.
func (a *admission) giveVF(container string, vf device.Device) {
	a.t.Helper()
	pod := kubelet.Pod{Namespace: "team", Name: "pod"}
	a.order, a.pods[pod] = []kubelet.Pod{pod}, map[string]kubelet.Devices{container: {}}
	a.now = a.now.Add(time.Second)
	a.prefer(vfs, []string{vf.ID}, nil, 1)
	a.allocated(vfs, []string{vf.ID})
}
