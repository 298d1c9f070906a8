// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"bytes"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/test/disk"
	"github.com/tandem-k8s/tandem/test/functions"
)

// Whichever step of the memory's write fails, or ends the daemon: the next daemon has the old or the new
// memory, after a power failure possibly none, with a warning. The next scan writes a memory that is whole.
func TestEveryStepOfTheMemory(t *testing.T) {
	disk.Each(t, func(t *testing.T, fault *disk.Case) {
		dir := t.TempDir()
		fault.Name(dir, "vfs.json")
		known := Known{Disk: fault.Disk.Disk(), File: filepath.Join(dir, "vfs.json")}
		start := func(s functions.Sysfs) (*VFs, string) {
			var log bytes.Buffer
			finder := pools.Finder{Sys: s.FS(), Prefix: "intel.com"}
			vfs, err := FindVFs(finder, config(t, resources(rdmaPool)), known, nil,
				slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			return vfs, log.String()
		}
		vfs, _ := start(rdmaVF())
		two := rdmaVF()
		two.Symlink(functions.Dir("0000:86:00.0")+"/virtfn1", "../0000:86:02.4")
		two.Function("0000:86:02.4", functions.Facts{"pf": "0000:86:00.0", "netdev": "ens1v1", "rdma": "mlx5_6"})
		fault.During(t, func() {
			vfs.finder.Sys = two.FS()
			if err := vfs.scanMachine(); err != nil {
				t.Error(err)
			}
		})
		boot, err := known.Disk.BootID()
		if err != nil {
			t.Fatal(err)
		}
		after, err := readMemory(known.File, boot)
		if err == nil {
			ids := len(after.Listed["intel.com/sriov-rdma-vf"])
			if ids != 1 && ids != 2 && !fault.Power {
				t.Errorf("the memory has %d devices", ids)
			}
		} else if !fault.Power {
			t.Error(err)
		}
		again, log := start(two)
		if warns := strings.Contains(log, "known devices not restored"); warns != (err != nil) {
			t.Errorf("memory %v, log %q", err, log)
		}
		if got := state(again, "intel.com/sriov-rdma-vf"); len(got) != 2 {
			t.Errorf("found %v", got)
		}
		whole, err := readMemory(known.File, boot)
		if err != nil || len(whole.Listed["intel.com/sriov-rdma-vf"]) != 2 {
			t.Errorf("after the next scan: %v, %v", whole, err)
		}
	})
}

// cdiNode is a plugin that writes device-info files and CDI specs with faults.
type cdiNode struct {
	*Plugin
	dir string
}

func newCDINode(t *testing.T, d *disk.Disk) *cdiNode {
	nodes := devices("infiniband/rdma_cm", "infiniband/uverbs5")
	p, _ := offered(t, rdmaVF(), nodes, "nvidia.com", resources(rdmaPool))
	dir := t.TempDir()
	p.host.Disk, p.host.DevinfoDir = d.Disk(), filepath.Join(dir, "devinfo file")
	p.host.CDI = &CDI{Disk: d.Disk(), Dirs: []string{filepath.Join(dir, "CDI spec")}}
	return &cdiNode{p, dir}
}

// files returns the contents of all files that are no temporary files.
func (n *cdiNode) files(t *testing.T) map[string]string {
	t.Helper()
	contents := map[string]string{}
	all, err := filepath.Glob(filepath.Join(n.dir, "*", "[^.]*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		contents[name] = string(content)
	}
	return contents
}

// Whichever step of the files of a device fails, or ends the daemon: without a power failure no file is
// partial, and the next daemon restores all files and removes temporary files.
func TestEveryStepOfContainerFiles(t *testing.T) {
	disk.Each(t, func(t *testing.T, fault *disk.Case) {
		whole := newCDINode(t, disk.New(1))
		whole.restoreFiles(nil)
		want := slices.Sorted(maps.Values(whole.files(t)))
		n := newCDINode(t, fault.Disk)
		fault.During(t, func() { n.restoreFiles(nil) })
		for name, content := range n.files(t) {
			if !fault.Power && !slices.Contains(want, content) {
				t.Errorf("%s is partial: %q", name, content)
			}
		}
		for _, dir := range []string{n.host.DevinfoDir, n.host.CDI.Dirs[0]} {
			if _, err := os.Stat(dir); err == nil {
				disk.Age(t, dir)
			}
		}
		next := newCDINode(t, fault.Disk)
		next.host.DevinfoDir, next.host.CDI.Dirs, next.dir = n.host.DevinfoDir, n.host.CDI.Dirs, n.dir
		if err := next.host.CDI.CleanUp(next.vfs.config, next.newestPool()); err != nil {
			t.Error(err)
		}
		next.restoreFiles(nil)
		got := slices.Sorted(maps.Values(next.files(t)))
		if !slices.Equal(got, want) {
			t.Errorf("files %q, want %q", got, want)
		}
		if left, _ := filepath.Glob(filepath.Join(n.dir, "*", ".tandem-*")); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// A file that cannot be removed, as on a file system that has become read-only, costs one line in the log:
// not one after each scan of the machine. (Here it is a directory that is not empty.)
func TestOneComplaintAboutDeviceInfo(t *testing.T) {
	t.Parallel()
	p, _ := offered(t, rdmaVF(), devices("infiniband/rdma_cm"), "nvidia.com", resources(rdmaPool))
	var log bytes.Buffer
	p.log = slog.New(slog.NewTextHandler(&log, nil))
	left, old := filepath.Join(p.host.DevinfoDir, ".tandem-left"), time.Now().Add(-24*time.Hour)
	if err := os.MkdirAll(filepath.Join(left, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(left, old, old); err != nil {
		t.Fatal(err)
	}
	for range 100 { // as Watch
		p.restoreFiles(nil)                 // after a scan
		p.restoreFiles(map[string]*Grant{}) // after filesPause
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d lines in the log", n)
	}
}
