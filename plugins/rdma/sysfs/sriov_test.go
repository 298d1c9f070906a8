// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/k8snetworkplumbingwg/sriovnet"
	"github.com/k8snetworkplumbingwg/sriovnet/pkg/utils/filesystem"

	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

// facts are all answers about one function.
type facts struct {
	PF           string
	Uplink       string
	Representors map[string]string
	Netdevs      map[string][]string
	VFIO         bool
	PKey         string
}

// ask asks about every function of a tree.
func ask(t *testing.T, sys fs.FS, s SRIOV) map[string]facts {
	t.Helper()
	tree, err := topology.Read(sys)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]facts{}
	for d := range tree.Devices() {
		f := facts{
			Uplink: s.Uplink(d.Address), VFIO: s.VFIO(d.Address), PKey: s.DefaultPKey(d.Address),
			Representors: s.Representors(d.Address), Netdevs: map[string][]string{},
		}
		if pf, ok := (Files{sys}).pf(d.Address); ok {
			f.PF = pf.String()
		}
		auxiliary := slices.DeleteFunc(topology.Names(sys, File(d.Address, "")), func(name string) bool {
			return !subfunction.MatchString(name)
		})
		for _, aux := range append(auxiliary, "") {
			if names := s.Netdevs(d.Address, aux); len(names) > 0 {
				f.Netdevs[aux] = names
			}
		}
		all[d.Address.String()] = f
	}
	return all
}

// read is what the tree, which is read for other things, says of the same.
func read(t *testing.T, sys fs.FS, all map[string]facts) map[string]facts {
	t.Helper()
	tree, err := topology.Read(sys)
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]facts{}
	for d := range tree.Devices() {
		f := all[d.Address.String()]
		f.PF, f.VFIO, f.Netdevs = "", d.Driver == "vfio-pci", map[string][]string{}
		if d.IsVF() {
			f.PF = d.PF.String()
		}
		for aux, names := range all[d.Address.String()].Netdevs {
			if aux != "" {
				f.Netdevs[aux] = names
			}
		}
		if len(d.Netdevs) > 0 {
			f.Netdevs[""] = d.Netdevs
		}
		said[d.Address.String()] = f
	}
	return said
}

// trees are all recorded machines, as they were recorded or with VFs, the same in switchdev mode with some
// VFs bound to vfio-pci, and trees with what no machine has.
func trees(t *testing.T) map[string]fs.FS {
	t.Helper()
	all := map[string]fs.FS{"made": made().FS(), "example": functions.Example().FS()}
	for _, name := range machines.Names() {
		for _, vfs := range []int{0, 12} {
			machine, err := machines.Load(name, vfs)
			if err != nil {
				t.Fatal(err)
			}
			all[fmt.Sprintf("%s, %d VFs", name, vfs)] = machine.FS()
			if vfs == 12 {
				all[name+", switchdev"] = switchdev(t, machine)
			}
		}
	}
	return all
}

// stock is what sriovnet says, without what live falls back to. It has the representors VF by VF, as the
// stock plugin does.
type stock struct {
	live
	sys fs.FS
	// of a VF within its PF; nil for that of the tree
	index func(vf string) (int, error)
}

func newStock(sys fs.FS) stock {
	s := stock{live: newLive(nil), sys: sys}
	s.Sys = fstest.MapFS{}
	return s
}

func (s stock) Representors(pf topology.Address) (found map[string]string) {
	for vf, index := range Indexes(s.sys, pf) {
		var err error
		if s.index != nil {
			index, err = s.index(vf)
		}
		name := ""
		if err == nil {
			name, err = sriovnet.GetVfRepresentor(pf.String(), index)
		}
		if err != nil {
			continue
		}
		if found == nil {
			found = map[string]string{}
		}
		found[vf] = name
	}
	return found
}

// On recorded machines sriovnet, on its file system variable, answers as Files do, which answer as the tree.
// The index of a VF is not asked there: sriovnet goes past its variable for that one. See TestOnSys.
func TestRecorded(t *testing.T) {
	for name, sys := range trees(t) {
		before := filesystem.Fs
		filesystem.Fs = rooted{sys: sys}
		got := ask(t, sys, newStock(sys))
		filesystem.Fs = before
		agree(t, name, sys, got)
	}
}

// agree compares the answers about a tree.
func agree(t *testing.T, name string, sys fs.FS, got map[string]facts) {
	t.Helper()
	want := ask(t, sys, Files{sys})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: sriovnet answers (+), files say (-):\n%s", name, diff)
	}
	if diff := cmp.Diff(read(t, sys, want), want); diff != "" {
		t.Errorf("%s: files say (+), the tree holds (-):\n%s", name, diff)
	}
}

// onSys says to TestOnSys that /sys is its own.
const onSys = "TANDEM_TEST_SYS"

// The same where each tree in turn is /sys, in a mount namespace: what is asked on a live node, the index of
// a VF too.
func TestOnSys(t *testing.T) {
	if os.Getenv(onSys) == "" {
		inNamespace(t)
		return
	}
	for name, sys := range trees(t) {
		if err := syscall.Mount("tmpfs", "/sys", "tmpfs", 0, ""); err != nil {
			t.Skip(err)
		}
		if err := os.CopyFS("/sys", only{sys}); err != nil {
			t.Fatal(err)
		}
		live := newStock(os.DirFS("/sys"))
		live.index = sriovnet.GetVfIndexByPciAddress
		agree(t, name, os.DirFS("/sys"), ask(t, os.DirFS("/sys"), live))
		if err := syscall.Unmount("/sys", 0); err != nil {
			t.Fatal(err)
		}
	}
}

// inNamespace runs the test again as root of a user namespace with mounts of its own.
func inNamespace(t *testing.T) {
	t.Helper()
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	again.Env = append(os.Environ(), onSys+"=1")
	again.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := again.CombinedOutput()
	switch {
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ENOSPC):
		t.Skipf("this kernel gives no user namespace: %v", err)
	case strings.Contains(string(out), "--- SKIP: "+t.Name()):
		t.Skipf("this kernel gives a user namespace no mounts:\n%s", out)
	case err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()):
		t.Errorf("%v\n%s", err, out)
	}
}

// only is the part of a tree that is asked about.
type only struct{ fs.FS }

func (o only) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(o.FS, name)
	return slices.DeleteFunc(entries, func(entry fs.DirEntry) bool {
		return name == "." && !slices.Contains([]string{"bus", "class", "devices"}, entry.Name())
	}), err
}

func (o only) ReadLink(name string) (string, error)   { return fs.ReadLink(o.FS, name) }
func (o only) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(o.FS, name) }
func (o only) ReadFile(name string) ([]byte, error)   { return fs.ReadFile(o.FS, name) }

// rooted gives sriovnet a tree under the names that it knows, /sys/…. The rest of the interface writes.
type rooted struct {
	filesystem.Filesystem
	sys fs.FS
}

func (r rooted) name(file string) string { return strings.TrimPrefix(path.Clean(file), "/sys/") }

func (r rooted) Stat(file string) (os.FileInfo, error) { return fs.Stat(r.sys, r.name(file)) }
func (r rooted) Readlink(file string) (string, error)  { return fs.ReadLink(r.sys, r.name(file)) }
func (r rooted) ReadFile(file string) ([]byte, error)  { return fs.ReadFile(r.sys, r.name(file)) }

func (r rooted) ReadDir(dir string) ([]os.FileInfo, error) {
	entries, err := fs.ReadDir(r.sys, r.name(dir))
	infos := make([]os.FileInfo, 0, len(entries))
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	return infos, err
}
