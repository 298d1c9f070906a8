// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/k8snetworkplumbingwg/sriovnet/pkg/utils/netlinkops"

	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/recording"
)

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

// What Files answer about the made tree, and so sriovnet: see TestRecorded.
func TestMade(t *testing.T) {
	all := ask(t, made().FS(), Files{made().FS()})
	got := map[string]string{}
	for address, f := range all {
		for vf, name := range f.Representors {
			got[vf+" representor"] = name
		}
		for what, is := range map[string]string{"uplink": f.Uplink, "key": f.PKey, "netdev of sf": first(f)} {
			if is != "" {
				got[address+" "+what] = is
			}
		}
		if f.VFIO {
			got[address+" vfio"] = f.PF
		}
	}
	want := map[string]string{
		"0000:81:00.0 uplink":       "enp129s0np0",
		"0000:83:00.1 vfio":         "0000:83:00.0",
		"0000:84:00.0 key":          "0xffff",
		"0000:84:00.1 key":          "0x8013",
		"0000:84:00.2 key":          "0x8002",
		"0000:85:00.0 netdev of sf": "ens5s88",
	}
	for i := range 12 {
		want[fmt.Sprintf("0000:81:%02x.%d uplink", (i+1)/8, (i+1)%8)] = "enp129s0np0"
	}
	for i := range 11 {
		if i != 3 { // its link is missing
			want[fmt.Sprintf("0000:81:%02x.%d representor", (i+1)/8, (i+1)%8)] = fmt.Sprintf("eth%d", 20-i)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	pf := topology.Address{Bus: 0x81}
	indexes := Indexes(made().FS(), pf)
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

func first(f facts) string {
	for aux, names := range f.Netdevs {
		if aux != "" {
			return names[0]
		}
	}
	return ""
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

// What sriovnet cannot answer Files do: it takes no domain of more than four digits. It never waits for
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
	live := At("/sys/", s.FS())
	if up, reps := live.Uplink(a), live.Representors(a); up != "eth9" || reps[vf] != "eth1" {
		t.Errorf("uplink %q, representors %q", up, reps)
	}
	if _, err := netlinkops.GetNetlinkOps().DevLinkGetAllPortList(); !errors.Is(err, errNotAsked) {
		t.Errorf("sriovnet asks for devlink ports: %v", err)
	}
	if f, ok := At("/tmp/sys", fstest.MapFS{}).(Files); !ok || f.Sys == nil {
		t.Errorf("another root is read as files: %v", ok)
	}
}
