// SPDX-License-Identifier: Apache-2.0

package pairs

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/test/disk"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

// A repair writes each pairs file of the node again and again: a file that has its content stays the same
// file, and another content replaces it.
func TestWriteKeepsEqualFile(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "pairs", "a.json")
	write := func(f File) os.FileInfo {
		if err := f.Write(system.Disk{}, name); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	first := write(New([]VF{{ID: "a"}}))
	if again := write(New([]VF{{ID: "a"}})); !os.SameFile(first, again) {
		t.Error("an equal file was replaced")
	}
	if changed := write(New([]VF{{ID: "b"}})); os.SameFile(first, changed) {
		t.Error("the file of another content is still there")
	}
	if read, err := Read(name); err != nil || read.Pairs[0].VF.ID != "b" {
		t.Errorf("%+v, %v", read, err)
	}
}

// firstPair returns a GPU and a VF of a recorded machine.
func firstPair(t *testing.T) (tree *topology.Tree, all []Device) {
	t.Helper()
	tree, err := machines.Tree("oci-mi300x-derived", 1)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[device.Kind]bool{}
	for d := range tree.Devices() {
		kind := device.VF
		if d.Class.IsGPU() {
			kind = device.GPU
		}
		if kinds[kind] || kind == device.VF && !d.IsVF() {
			continue
		}
		kinds[kind] = true
		one := device.Device{ID: d.Address.String(), Address: d.Address, NUMA: d.NUMA, Healthy: true}
		all = append(all, Device{one, string(kind), kind})
	}
	return tree, all
}

// Whichever step fails, or ends the process, while a container's file is completed: without a power failure
// the file is the old or the new one; and the next look completes the file, and removes temporary files.
func TestEveryStepOfAPairsFile(t *testing.T) {
	t.Parallel()
	tree, all := firstPair(t)
	disk.Each(t, func(t *testing.T, fault *disk.Case) {
		dir := filepath.Join(t.TempDir(), "pairs file")
		name := filepath.Join(dir, "container.json")
		start := func() *Folder { return NewFolder(fault.Disk.Disk(), dir, slog.New(slog.DiscardHandler)) }
		var vfs []VF
		for _, d := range all {
			if d.Kind == device.VF {
				vfs = append(vfs, d.namedVF(tree))
			}
		}
		before, after := New(vfs), Compose(tree, all, vfs)
		if err := before.Write(fault.Disk.Disk(), name); err != nil {
			t.Fatal(err)
		}
		said := false
		struck := fault.During(t, func() {
			said = start().Complete([]string{name}, vfs, tree, func() []Device { return all })
		})
		got, err := Read(name)
		if !fault.Power && (err != nil || !cmp.Equal(got, before) && !cmp.Equal(got, after)) {
			t.Errorf("the file is neither the old nor the new one: %+v, %v", got, err)
		}
		if !fault.Power && said != (struck == disk.Nothing) && !cmp.Equal(got, after) {
			t.Errorf("complete: %v, after %v", said, struck)
		}
		folder := start()
		for size := range int64(2) { // of the kubelet's checkpoint, which is written in between
			folder.Tidy(tree, []kubelet.Granted{{Container: "pod/main", Mounts: []string{name}}},
				kubelet.Identity{Size: size}, nil, func(kubelet.Devices) []Device { return all })
		}
		if healed, err := Read(name); err != nil || !cmp.Equal(healed, after) {
			t.Errorf("after the next look: %+v, %v; want %+v", healed, err, after)
		}
		if left := disk.Leftovers(dir); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// A file that is written again after a boot has the names of the container's own devices: the tree has those
// of a function, and none of a sub-function of that function.
func TestNamesInRestoredFile(t *testing.T) {
	t.Parallel()
	tree, all := firstPair(t)
	at := all[0]
	for _, d := range all {
		if d.Kind == device.VF {
			at = d
		}
	}
	own, _ := tree.Device(at.Address)
	for id, want := range map[string]string{
		at.ID: own.RDMA[0], topology.ReplicaID(at.ID, 3): own.RDMA[0], "mlx5_core.sf.4": "",
	} {
		dir := t.TempDir()
		name := filepath.Join(dir, "container.json")
		d := at
		d.ID = id
		NewFolder(system.Disk{}, dir, slog.New(slog.DiscardHandler)).Tidy(tree,
			[]kubelet.Granted{{Container: "pod/main", Mounts: []string{name}}}, kubelet.Identity{}, nil,
			func(kubelet.Devices) []Device { return []Device{d} })
		read, err := Read(name)
		if err != nil || len(read.Pairs) != 1 || read.Pairs[0].VF.RDMA != want {
			t.Errorf("%s: %+v, %v; want the RDMA device %q", id, read, err, want)
		}
	}
}
