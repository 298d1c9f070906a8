// SPDX-License-Identifier: Apache-2.0

package pools

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
	"github.com/k8snetworkplumbingwg/sriovnet/pkg/utils/netlinkops"

	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/recording"
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
		if pf := d.PF; d.IsVF() {
			f.PF = pf.String()
		}
		auxiliary := slices.DeleteFunc(topology.Names(sys, FunctionFile(d.Address, "")), func(name string) bool {
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

// trees are all recorded machines, as they were recorded, with VFs, and with VFs in switchdev mode of which
// some are bound to vfio-pci, and trees with what no machine has. With -short a machine has one of the three
// ways.
func trees(t *testing.T) map[string]fs.FS {
	t.Helper()
	all := map[string]fs.FS{"made": made().FS(), "example": functions.Example().FS()}
	for i, name := range machines.Names() {
		for way, vfs := range []int{0, 12, 12} {
			if testing.Short() && way != i%3 {
				continue
			}
			machine, err := machines.Load(name, vfs)
			if err != nil {
				t.Fatal(err)
			}
			sys := machine.FS()
			if way == 2 {
				sys = switchdev(t, machine)
			}
			all[fmt.Sprint(name, ", ", []string{"recorded", "VFs", "switchdev"}[way])] = sys
		}
	}
	return all
}

// sriovnetAlone is what sriovnet says, without what live falls back to. It has the representors VF by VF, as
// the stock plugin does.
type sriovnetAlone struct {
	live
	sys fs.FS
	// of a VF within its PF; nil for that of the tree
	index func(vf string) (int, error)
}

func newAlone(sys fs.FS) sriovnetAlone {
	s := sriovnetAlone{live: newLive(nil), sys: sys}
	s.Sys = fstest.MapFS{}
	return s
}

func (s sriovnetAlone) Representors(pf topology.Address) (found map[string]string) {
	for vf, index := range vfIndexes(s.sys, pf) {
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

// On recorded machines sriovnet, on its file system variable, answers as SRIOVFiles do, which answer as the
// tree.
// The index of a VF is not asked there: sriovnet goes past its variable for that one. See TestOnSys.
func TestRecorded(t *testing.T) {
	for name, sys := range trees(t) {
		before := filesystem.Fs
		filesystem.Fs = rooted{sys: sys}
		got := ask(t, sys, newAlone(sys))
		filesystem.Fs = before
		agree(t, name, sys, got)
	}
}

// agree compares the answers about a tree.
func agree(t *testing.T, name string, sys fs.FS, got map[string]facts) {
	t.Helper()
	want := ask(t, sys, SRIOVFiles{sys})
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
		live := newAlone(os.DirFS("/sys"))
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
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v",
		fmt.Sprint("-test.short=", testing.Short()))
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

// port makes a netdev a port of the switch in a NIC.
func port(s functions.Sysfs, pf, netdev, name string) {
	s.Netdev(pf, netdev, "1")
	s.Write(path.Join(functions.Dir(pf), "net", netdev, "phys_switch_id"), "c2cfc60003a1420c")
	s.Write(path.Join(functions.Dir(pf), "net", netdev, "phys_port_name"), name)
}

// made is what no recorded machine has. The first PF is in switchdev mode, with 12 VFs and the representors
// of all but one, in another order than their names, and of sub-functions and of VFs of another host; one
// link virtfn<N> is missing. The second is not, though its netdev has the name of a port. VFs of the third
// have drivers for virtual machines; those of the fourth, in InfiniBand, have partition keys: one several
// devices, one a device without. On the last hang sub-functions.
func made() functions.Sysfs {
	s := functions.New()
	const a, b, c, d, e = "0000:81:00.0", "0000:82:00.0", "0000:83:00.0", "0000:84:00.0", "0000:85:00.0"
	s.PF(0x81, "enp129s0np0", 12, nil)
	s.Remove(functions.Dir(a) + "/virtfn3")
	port(s, a, "enp129s0np0", "p0")
	for i := range 11 {
		port(s, a, fmt.Sprintf("eth%d", 20-i), fmt.Sprintf("pf0vf%d", i))
	}
	port(s, a, "ens0", "pf0sf1")
	port(s, a, "enc0", "c1pf0vf11")
	port(s, a, "ena0", "p0s1")
	s.PF(0x82, "ens2np1", 2, nil)
	s.Write(path.Join(functions.Dir(b), "net", "ens2np1", "phys_port_name"), "p1")
	s.PF(0x83, "ens3", 3, nil)
	for vf, driver := range map[string]string{"0000:83:00.1": "vfio-pci", "0000:83:00.2": "mlx5_vfio_pci"} {
		s.Remove(functions.Dir(vf))
		s.Function(vf, functions.Facts{"pf": c, "driver": driver})
	}
	s.PF(0x84, "ibs4", 4, functions.Facts{"class": "0x020700"})
	s.RDMA("0000:84:00.1", "mlx5_13", "13")
	s.Remove(functions.Dir("0000:84:00.4") + "/infiniband")
	for rdma, key := range map[string]string{
		"0/infiniband/mlx5_1320": "0xffff", "1/infiniband/mlx5_13": "0x8013", "1/infiniband/mlx5_1321": "0x8001",
		"2/infiniband/mlx5_1322": "0x8002",
	} {
		s.Write(strings.TrimSuffix(functions.Dir(d), "0")+rdma+"/ports/1/pkeys/0", key)
		s.Write(strings.TrimSuffix(functions.Dir(d), "0")+rdma+"/ports/1/pkeys/1", "0x0001")
	}
	s.Function(e, functions.Facts{"netdev": "ens5"})
	s.Subfunction(e, "mlx5_core.sf.2", "88", "ens5s88", "mlx5_70")
	s.Subfunction(e, "mlx5_core.sf.3", "5", "", "")
	return s
}

// TestIndexesOfVFs: the index of a VF is the number of its link, which TestRecorded does not compare.
func TestIndexesOfVFs(t *testing.T) {
	pf := topology.Address{Bus: 0x81}
	indexes := vfIndexes(made().FS(), pf)
	for vf, index := range map[string]int{
		"0000:81:00.1": 0, "0000:81:00.3": 2, "0000:81:00.5": 4, "0000:81:01.4": 11,
	} {
		if got, known := indexes[vf]; got != index || !known {
			t.Errorf("%s: index %d, want %d", vf, got, index)
		}
	}
	if len(indexes) != 11 {
		t.Errorf("indexes of %d VFs", len(indexes))
	}
}

// switchdev puts all PFs of a machine into switchdev mode, their VFs' representors beside their netdevs, and
// binds some VFs to vfio-pci.
func switchdev(t *testing.T, machine *recording.Machine) fs.FS {
	t.Helper()
	sys := machine.FS()
	tree, err := topology.Read(sys)
	if err != nil {
		t.Fatal(err)
	}
	b := machine.Build()
	add := func(pf *topology.Device, netdev, port string) {
		target, err := fs.ReadLink(sys, topology.PCIDevices+"/"+pf.Address.String())
		if err != nil {
			t.Fatal(err)
		}
		dir := path.Join(topology.PCIDevices, target, "net", netdev)
		b.File(dir+"/phys_switch_id", pf.Address.String()+"\n")
		b.File(dir+"/phys_port_name", port+"\n")
		if !b.Has("class/net/" + netdev) {
			b.Link("class/net/"+netdev, "../../"+dir)
		}
	}
	number := 0
	for d := range tree.Devices() {
		if len(d.VFs) == 0 || len(d.Netdevs) == 0 {
			continue
		}
		for i := range d.VFs {
			add(d, fmt.Sprintf("aaa%d", 10000-number), fmt.Sprintf("pf%dvf%d", d.Address.Function, i))
			number++
		}
		add(d, d.Netdevs[0], fmt.Sprintf("p%d", d.Address.Function))
	}
	changed, err := b.Machine()
	if err != nil {
		t.Fatal(err)
	}
	return bound{only{changed.FS()}}
}

// bound is a tree in which some VFs are bound to vfio-pci.
type bound struct{ only }

func (b bound) ReadLink(name string) (string, error) {
	dir, file := path.Split(name)
	if _, err := fs.Lstat(b.FS, dir+"physfn"); file == "driver" && err == nil && strings.HasSuffix(dir, "3/") {
		return "../../../../bus/pci/drivers/vfio-pci", nil
	}
	return b.only.ReadLink(name)
}

// What sriovnet cannot answer SRIOVFiles do: it takes no domain of more than four digits. It never waits for
// devlink.
func TestBeyondSriovnet(t *testing.T) {
	const pf = "10000:81:00.0"
	s := functions.New()
	s.Function(pf, functions.Facts{})
	port(s, pf, "eth9", "p0")
	port(s, pf, "eth1", "pf0vf1")
	const vf = "10000:81:00.2"
	s.Function(vf, functions.Facts{"pf": pf})
	s.Symlink(functions.Dir(pf)+"/virtfn1", "../"+vf)
	a, err := topology.ParseAddress(pf)
	if err != nil {
		t.Fatal(err)
	}
	live := SRIOVAt("/sys/", s.FS())
	if up, reps := live.Uplink(a), live.Representors(a); up != "eth9" || reps[vf] != "eth1" {
		t.Errorf("uplink %q, representors %q", up, reps)
	}
	if _, err := netlinkops.GetNetlinkOps().DevLinkGetAllPortList(); !errors.Is(err, errNotAsked) {
		t.Errorf("sriovnet asks for devlink ports: %v", err)
	}
	if f, ok := SRIOVAt("/tmp/sys", fstest.MapFS{}).(SRIOVFiles); !ok || f.Sys == nil {
		t.Errorf("another root is read as files: %v", ok)
	}
}
