// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
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
