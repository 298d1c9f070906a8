// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/test/scale"
)

// pairsFiles asks for a pairs file for every container with VFs and checks them all, again and again.
type pairsFiles struct {
	dir     string
	written map[string][]byte // what the containers were started with
	newest  string            // of the container that is being admitted
	served  []pairs.Served
	checked int // containers with GPUs and VFs
	mapped  int // of those, in how many the exported pairs were those of the file
}

// pair is what the RDMA plugin does after it has reported VFs.
func (f *pairsFiles) pair(a *admission, name string, ids []string) {
	if f == nil || name != vfs {
		return
	}
	f.newest = filepath.Join(f.dir, fmt.Sprint(len(f.written), ".json"))
	var all []pairs.VF
	for _, id := range ids {
		all = append(all, pairs.VF{
			ID: id, Address: a.address(vfs, id), Resource: vfs, RDMA: "rdma of " + id, Netdev: "netdev of " + id,
		})
	}
	var written bool
	if f.served, written, _ = a.coordinator.Pair(vfs, ids, f.newest, all); written {
		return
	}
	if err := pairs.New(all).Write(system.Disk{}, f.newest); err != nil {
		a.t.Fatal(err)
	}
}

// check looks at the file of a container that has all its devices, and that those of others are as they were.
func (f *pairsFiles) check(a *admission, devices kubelet.Devices) {
	if f == nil {
		return
	}
	for file, before := range f.written {
		if now, err := os.ReadFile(file); err != nil || !bytes.Equal(before, now) {
			a.t.Errorf("%s of a container that has started has changed: %v", file, err)
		}
	}
	if len(devices[vfs]) == 0 {
		return
	}
	content, err := os.ReadFile(f.newest)
	if err != nil {
		a.t.Fatal(err)
	}
	f.written[f.newest] = content
	file, err := pairs.Read(f.newest)
	if err != nil {
		a.t.Fatal(err)
	}
	var got levels
	seen := kubelet.Devices{gpus: {}, vfs: {}}
	agree := true
	for _, p := range file.Pairs {
		if p.VF.RDMA != "rdma of "+p.VF.ID || p.VF.Resource != vfs {
			a.t.Errorf("VF %+v", p.VF)
		}
		seen[vfs] = append(seen[vfs], p.VF.ID)
		if p.GPU == nil {
			continue
		}
		seen[gpus] = append(seen[gpus], p.GPU.ID)
		d := a.coordinator.current().tree.Distance(p.GPU.Address, p.VF.Address)
		if got[d.Level]++; p.Distance != d.Level.String() ||
			d.Level.Direct() && d.Bridges > 0 && p.Switch == nil {
			a.t.Errorf("pair %+v is %v apart", p, d)
		}
		agree = agree && slices.Contains(f.served, pairs.Served{GPU: p.GPU.Address, VF: p.VF.ID})
	}
	for name, ids := range seen {
		slices.Sort(ids)
		want := slices.Sorted(slices.Values(devices[name]))
		if diff := cmp.Diff(want, slices.Compact(ids)); diff != "" && len(want)+len(ids) > 0 {
			a.t.Errorf("%s in the pairs file: %s", name, diff)
		}
	}
	if len(devices[gpus]) > 0 {
		if want := a.levels(devices); got != want {
			a.t.Errorf("pairs are %v, the best %v", got, want)
		}
		f.checked++
		if agree {
			f.mapped++
		} else if !a.guessed {
			a.t.Errorf("exported pairs %v are not those of %s", f.served, content)
		}
	}
}

// movePairs moves the folder of pairs files into a directory of the test, and returns the folder.
func (a *admission) movePairs() string {
	dir := filepath.Join(a.t.TempDir(), "pairs")
	log := slog.New(slog.NewTextHandler(a.t.Output(), nil))
	a.coordinator.pairs = pairs.NewFolder(a.coordinator.Disk, dir, log)
	return dir
}

// Whatever order the kubelet asks in, and for init containers and pods of two containers too, a container's
// pairs file is complete and true once the kubelet has all answers, and stays as it is.
func TestPairsFiles(t *testing.T) {
	for _, exclude := range []bool{false, true} {
		var checked, mapped int
		for seed := range uint64(scale.Rounds(10)) {
			a := newAdmission(t, "oci-mi300x-derived", 4, exclude, seed)
			a.files = &pairsFiles{dir: a.movePairs(), written: map[string][]byte{}}
			a.keepCheckpoint()
			a.mixedLoad(300)
			checked, mapped = checked+a.files.checked, mapped+a.files.mapped
		}
		if checked < scale.Rounds(500) {
			t.Errorf("only %d containers with GPUs and VFs", checked)
		}
		t.Logf("excludeTopology %v: exported pairs right in %d of %d containers", exclude, mapped, checked)
	}
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
		tx.open = &openAdmission{container: &recipient{}, files: []string{open}}
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

func TestReadGranted(t *testing.T) {
	answer, err := proto.Marshal(&v1beta1.ContainerAllocateResponse{
		Mounts: []*v1beta1.Mount{{HostPath: "/run/tandem/pairs/x.json"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	type entry struct {
		PodUID, ContainerName, ResourceName string
		DeviceIDs                           map[string][]string
		AllocResp                           []byte
	}
	var file struct {
		Data struct {
			PodDeviceEntries  []entry
			RegisteredDevices map[string][]string
		}
	}
	file.Data.PodDeviceEntries = []entry{
		{"u", "c", vfs, map[string][]string{"0": {"b"}, "1": {"a"}}, answer},
		{"u", "c", gpus, map[string][]string{"0": {"g"}}, []byte("no protobuf")},
	}
	content, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "device-plugins"), 0o700); err != nil {
		t.Fatal(err)
	}
	checkpoint := filepath.Join(dir, "device-plugins", "kubelet_internal_checkpoint")
	if err := os.WriteFile(checkpoint, content, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := kubelet.ReadGranted(dir)
	want := []kubelet.Granted{
		{Container: "u/c", Devices: map[string][]string{vfs: {"a", "b"}, gpus: {"g"}},
			Mounts: []string{"/run/tandem/pairs/x.json"}},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v, %s", err, diff)
	}
	if err := os.WriteFile(checkpoint, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := kubelet.ReadGranted(dir); err == nil || !strings.Contains(err.Error(), "parse") {
		t.Errorf("half a checkpoint: %v", err)
	}
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
	slow.open.files = []string{filepath.Join(t.TempDir(), "pairs.json")}
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
