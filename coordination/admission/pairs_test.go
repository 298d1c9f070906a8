// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/coordination/system"
)

// movePairs moves the folder of pairs files into a directory of the test, and returns the folder.
func (a *admission) movePairs() string {
	dir := filepath.Join(a.t.TempDir(), "pairs")
	log := slog.New(slog.NewTextHandler(a.t.Output(), nil))
	a.coordinator.pairs = pairs.NewFolder(a.coordinator.Disk, dir, log)
	return dir
}

// A boot takes the files, a container runtime makes a folder of one, a daemon dies before the GPUs are in it:
// the checkpoint still says which containers there are. The file of one that is gone goes once two
// checkpoints lack it, whatever the times of the files, and that of the container in admission stays.
func TestTidyPairs(t *testing.T) {
	a := newAdmission(t, "oci-mi300x-derived", 1, false, 1)
	c := a.coordinator
	dir := a.movePairs()
	gpu, vf := a.all[gpus][0], a.all[vfs][0]
	file := filepath.Join(dir, "kept.json")
	recorded := kubelet.Checkpoint{Identity: kubelet.Identity{Size: 1}}
	sourcesOf(c).recorded = func() (kubelet.Checkpoint, error) { return recorded, nil }
	sourcesOf(c).granted = func() ([]kubelet.Granted, error) {
		return []kubelet.Granted{
			{Container: "u/c", Devices: kubelet.Devices{gpus: {gpu.ID}, vfs: {vf.ID}},
				Mounts: []string{"/etc/other", file}},
			{Container: "u/gone", Devices: kubelet.Devices{"no.plugin/any": {"x"}},
				Mounts: []string{filepath.Join(dir, "unknown.json")}},
		}, nil
	}
	for _, before := range []struct {
		name string
		make func() error
		rdma string
	}{
		{"a boot", func() error { return nil }, "mlx5_10"},
		{"a boot and a container runtime", func() error { return os.Mkdir(file, 0o700) }, "mlx5_10"},
		{"a daemon's death", func() error {
			return pairs.New([]pairs.VF{{ID: vf.ID, Address: vf.Address, Resource: vfs, RDMA: "seen before"}}).
				Write(c.Disk, file)
		}, "seen before"},
	} {
		if err := os.RemoveAll(file); err != nil {
			t.Fatal(err)
		}
		if err := before.make(); err != nil {
			t.Fatal(err)
		}
		if err := c.Announce(vfs, device.VF, device.Announcement{Devices: a.all[vfs]}); err != nil {
			t.Fatal(err)
		}
		got, err := pairs.Read(file)
		if err != nil || len(got.Pairs) != 1 || got.Pairs[0].GPU == nil || got.Pairs[0].GPU.ID != gpu.ID ||
			got.Pairs[0].VF.ID != vf.ID || got.Pairs[0].VF.RDMA == "" {
			t.Errorf("after %s: %+v, %v", before.name, got, err)
		}
	}
	former, open := filepath.Join(dir, "former.json"), filepath.Join(dir, "open.json")
	for _, name := range []string{former, open, file} {
		err := errors.Join(pairs.New(nil).Write(c.Disk, name),
			os.Chtimes(name, time.Time{}, time.Now().Add(-time.Hour)))
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.commit(func(tx *transaction) error {
		tx.open = &openAdmission{Container: &recipient{}, Files: []string{open}}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, after := range []struct {
		size int64
		want []string
	}{{1, []string{former, file, open}}, {1, []string{former, file, open}}, {2, []string{file, open}}} {
		recorded.Identity.Size = after.size
		c.tidyPairs()
		left, err := filepath.Glob(filepath.Join(dir, "*"))
		if diff := cmp.Diff(after.want, left); diff != "" || err != nil {
			t.Errorf("%v, %s", err, diff)
		}
	}
}

// Files of containers that have ended go while nothing is announced.
func TestStayTidy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "pairs")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		ended, running := filepath.Join(dir, "ended.json"), filepath.Join(dir, "running.json")
		for _, name := range []string{ended, running} {
			err := errors.Join(pairs.New(nil).Write(system.Disk{}, name), os.Chtimes(name, time.Time{}, time.Now()))
			if err != nil {
				t.Fatal(err)
			}
		}
		read := &sources{granted: func() ([]kubelet.Granted, error) {
			return []kubelet.Granted{{Container: "u/c", Mounts: []string{running}}}, nil
		}, recorded: func() (kubelet.Checkpoint, error) { // written from time to time
			return kubelet.Checkpoint{Identity: kubelet.Identity{Modified: time.Now().UnixNano()}}, nil
		}}
		c := &Coordinator{Config: read.with(Config{})}
		c.startAt(nil, time.Now)
		c.pairs = pairs.NewFolder(c.Disk, dir, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = c.StayTidy(ctx) }()
		<-time.After(2*tidyPause - time.Second)
		synctest.Wait()
		if left, err := filepath.Glob(filepath.Join(dir, "*")); len(left) != 2 || err != nil {
			t.Errorf("%v are left too soon, %v", left, err)
		}
		<-time.After(2 * time.Second)
		synctest.Wait()
		left, err := filepath.Glob(filepath.Join(dir, "*"))
		if diff := cmp.Diff([]string{running}, left); diff != "" || err != nil {
			t.Errorf("%v, %s", err, diff)
		}
	})
}

// A write of a pairs file that is slow writes what came meanwhile too, and not what it began with.
func TestASlowWriteHasWhatCameSince(t *testing.T) {
	t.Parallel()
	a := newAdmission(t, "oci-mi300x-derived", 1, false, 1)
	a.keepCheckpoint()
	c := a.coordinator
	gpu, vf := a.all[gpus][0], a.all[vfs][0]
	a.allocated(vfs, []string{vf.ID})
	slow := c.current().clone()
	slow.open.Files = []string{filepath.Join(t.TempDir(), "pairs.json")}
	c.state.Store(slow)
	if got := pairedDevices(slow, slow.open, c.current()); len(got) != 1 || got[0].ID != vf.ID {
		t.Errorf("the container has %v, want the VF", got)
	}
	a.allocated(gpus, []string{gpu.ID})
	if got := pairedDevices(slow, slow.open, c.current()); len(got) != 2 {
		t.Errorf("the container has %v, want both halves", got)
	}
	c.state.Store(newState(slow.tree))
	if got := pairedDevices(slow, slow.open, c.current()); len(got) != 1 {
		t.Errorf("another container is being admitted; the first one has %v, want the VF", got)
	}
}

// A client that requests one pairs file after the other for the same VFs gets no more files than a container
// can have resources, and the same file does not count again.
func TestPairsFilesOfContainerAreBounded(t *testing.T) {
	t.Parallel()
	a, dir := newPaired(t)
	c := a.coordinator
	vf := a.all[vfs][2]
	a.giveVF("c", vf)
	named := []pairs.VF{{ID: vf.ID, Address: vf.Address, Resource: vfs}}
	for n := range device.MaxResources + 2 {
		file := filepath.Join(dir, fmt.Sprint(n, ".json"))
		for range 2 {
			if _, written, _ := c.Pair(vfs, []string{vf.ID}, file, named); written != (n < device.MaxResources) {
				t.Errorf("file %d: written %t", n, written)
			}
		}
	}
	last := c.current().open
	if len(last.Files) != device.MaxResources || len(last.VFs) != device.MaxResources {
		t.Errorf("%d files and %d VFs are remembered, want %d each", len(last.Files), len(last.VFs),
			device.MaxResources)
	}
}

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

// TestPairsOfAnUnannouncedResource: the announcement of a resource beyond the limits (device.MaxDevices)
// is not sent, and its plugin works on: the coordinator records its Allocates, and its pairs file is asked
// for. The answer then has no pair, no call panics, and the coordinator writes the file.
func TestPairsOfAnUnannouncedResource(t *testing.T) {
	a := newAdmission(t, "oci-mi300x-derived", 1, true, 1)
	const shared = "rdma/hca_shared"
	ids := []string{"0000:0c:00.0::1"}
	taken, err := a.coordinator.Allocated(t.Context(), shared, ids)
	if err != nil || taken.GetRefusal() != "" {
		t.Fatal(taken, err)
	}
	defer func() {
		if cause := recover(); cause != nil {
			t.Errorf("panic: %v", cause)
		}
	}()
	file := filepath.Join(a.movePairs(), "pairs.json")
	served, written, _ := a.coordinator.Pair(shared, ids, file, []pairs.VF{{ID: ids[0]}})
	if len(served) > 0 || !written {
		t.Errorf("pairs %v, file written: %v", served, written)
	}
}

// A container has a VF of a pool with a pairs file and one of a pool without: the file has both, whichever
// the kubelet allocates first.
func TestPairsFileHasTheVFsOfAllPools(t *testing.T) {
	const other = "nvidia.com/other"
	for _, order := range [][]string{
		{gpus, other, vfs}, {other, vfs, gpus}, {vfs, other, gpus}, {gpus, vfs, other},
	} {
		a, dir := newPaired(t)
		ids := map[string]string{gpus: a.all[gpus][0].ID, vfs: a.all[vfs][0].ID, other: a.all[vfs][1].ID}
		for name, devices := range map[string][]device.Device{vfs: a.all[vfs][:1], other: a.all[vfs][1:2]} {
			if err := a.coordinator.Announce(name, device.VF, device.Announcement{Devices: devices}); err != nil {
				t.Fatal(err)
			}
		}
		pod := kubelet.Pod{Namespace: "team", Name: "pod"}
		a.order, a.pods[pod] = []kubelet.Pod{pod}, map[string]kubelet.Devices{"c": {}}
		a.now = a.now.Add(time.Second)
		file := filepath.Join(dir, "file.json")
		for _, name := range order {
			a.prefer(name, []string{ids[name]}, nil, 1)
			a.allocated(name, []string{ids[name]})
			if name == vfs {
				a.pair(a.all[vfs][0], file)
			}
		}
		if got, err := pairs.Read(file); err != nil || len(got.Pairs) != 2 {
			t.Errorf("%v: %d of 2 VFs are in the file, %v", order, len(got.Pairs), err)
		}
	}
}
