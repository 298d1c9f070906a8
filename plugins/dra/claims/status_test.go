// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"encoding/json"
	"io/fs"
	"path"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/gpu/amd"
	"github.com/tandem-k8s/tandem/test/disk"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

// A claim's status says what was handed out for each device, and how the node calls it.
func TestStatus(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 4, toldVFs, true)
	n.allocate(pool.TypeVF, 1)
	claim := n.extended("train", [2]int{1, 1})
	pairs := n.need("pairs", want{"pairs", pool.TypePair, 1})
	n.ready(claim)
	n.ready(pairs)
	now := metav1.Now()
	n.Host.Sys = addressed{n.sys} // recordings have no MAC addresses
	statuses := slices.Concat(
		n.Status(n.state, n.prepared(claim.UID), now), n.Status(n.state, n.prepared(pairs.UID), now))
	var got []map[string]string
	for _, s := range statuses {
		data := map[string]string{}
		if err := json.Unmarshal(s.Data.Raw, &data); err != nil {
			t.Fatal(err)
		}
		data["device"] = s.Device
		if s.NetworkData != nil {
			data["netdev"], data["address"] = s.NetworkData.InterfaceName, s.NetworkData.HardwareAddress
		}
		got = append(got, data)
		if c := s.Conditions[0]; s.Driver != pool.Driver || s.Pool != poolName || c.Type != "Ready" ||
			c.Status != metav1.ConditionTrue || c.Reason == "" || c.LastTransitionTime != now {
			t.Errorf("status %+v", s)
		}
	}
	if diff := cmp.Diff([]map[string]string{
		{"device": "gpu-11-00-0", "gpu": "0000:11:00.0"},
		{"device": "vf-2a-00-2", "vf": "0000:0c:00.1", "token": "0000:2a:00.2", "pf": "0000:0c:00.0",
			"rdmaDevice": "mlx5_8", "netdev": "rdma0v0", "address": "02:00:00:00:00:01"},
		{"device": "pair-2f-00-0", "gpu": "0000:2f:00.0", "vf": "0000:2a:00.1", "pf": "0000:2a:00.0",
			"rdmaDevice": "mlx5_12", "netdev": "rdma1v0", "address": "02:00:00:00:00:01"},
	}, got); diff != "" {
		t.Error(diff)
	}
}

// told is the data in the status of a device.
func (n *node) told(status resourceapi.AllocatedDeviceStatus) (data deviceData) {
	n.t.Helper()
	if err := json.Unmarshal(status.Data.Raw, &data); err != nil {
		n.t.Fatal(err)
	}
	return data
}

// Where the PF is in switchdev mode the status names the VF's representor too: what Open vSwitch knows it by.
func TestStatusInSwitchdevMode(t *testing.T) {
	recorded, err := machines.Load("oci-mi300x-derived", 4)
	if err != nil {
		t.Fatal(err)
	}
	place, err := fs.ReadLink(recorded.FS(), "bus/pci/devices/0000:0c:00.0")
	if err != nil {
		t.Fatal(err)
	}
	b := recorded.Build()
	for netdev, port := range map[string]string{"rdma0": "p0", "eth3": "pf0vf0", "eth2": "pf0vf1"} {
		dir := path.Join("bus/pci/devices", place, "net", netdev)
		b.File(dir+"/phys_switch_id", "c2cfc60003a1420c\n")
		b.File(dir+"/phys_port_name", port+"\n")
	}
	machine, err := b.Machine()
	if err != nil {
		t.Fatal(err)
	}
	tree, err := topology.Read(machine.FS())
	if err != nil {
		t.Fatal(err)
	}
	backend, err := amd.New(machine.FS(), amd.Single)
	if err != nil {
		t.Fatal(err)
	}
	n := newNodeOf(t, disk.New(1), machine.FS(), tree, backend, plainVFs, true)
	claim := n.need("vfs", want{"vfs", pool.TypeVF, 2})
	n.ready(claim)
	got := map[string]string{}
	for _, s := range n.Status(n.state, n.prepared(claim.UID), metav1.Now()) {
		data := n.told(s)
		got[data.VF] = data.Representor
	}
	if diff := cmp.Diff(map[string]string{"0000:0c:00.2": "eth2", "0000:2a:00.2": ""}, got); diff != "" {
		t.Error(diff)
	}
}

// The folder of a PF is listed once for all VFs of a claim, and not at all where no netdev is a representor.
func TestStatusLooksOncePerPF(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 8, plainVFs, true)
	claim := n.need("vfs", want{"vfs", pool.TypeVF, 40})
	n.ready(claim)
	sys := listing{FS: n.sys, times: map[string]int{}}
	n.Host.Sys = sys
	pfs := map[string]bool{}
	for _, s := range n.Status(n.state, n.prepared(claim.UID), metav1.Now()) {
		pfs[n.told(s).PF] = true
	}
	for pf := range pfs {
		dir := "bus/pci/devices/" + pf
		if all, netdevs := sys.times[dir], sys.times[dir+"/net"]; all != 0 || netdevs != 1 {
			t.Errorf("%s is listed %d times, its netdevs %d times", pf, all, netdevs)
		}
	}
	if len(pfs) == 0 || len(pfs) > 20 {
		t.Errorf("VFs of %d PFs", len(pfs))
	}
}

// listing is a sysfs that counts how often a folder is listed.
type listing struct {
	fs.FS
	times map[string]int
}

func (l listing) ReadDir(name string) ([]fs.DirEntry, error) {
	l.times[name]++
	return fs.ReadDir(l.FS, name)
}

func (l listing) ReadLink(name string) (string, error)   { return fs.ReadLink(l.FS, name) }
func (l listing) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(l.FS, name) }

// Of a bundle all is named; it is no network device.
func TestStatusOfBundle(t *testing.T) {
	n := newNode(t, "amd-mi300x-smc-thor2-cpx-derived", 16, toldVFs, true)
	claim := bundle(n)
	n.ready(claim)
	status := n.Status(n.state, n.prepared(claim.UID), metav1.Now())
	data := n.told(status[0])
	if len(data.GPUs) != 8 || len(data.VFs) != 8 || data.GPU != "" || status[0].NetworkData != nil {
		t.Errorf("status %+v, data %+v", status, data)
	}
}

// addressed is a sysfs in which every netdev has a MAC address.
type addressed struct{ fs.FS }

func (a addressed) ReadFile(name string) ([]byte, error) {
	if path.Base(name) == "address" {
		return []byte("02:00:00:00:00:01\n"), nil
	}
	return fs.ReadFile(a.FS, name)
}
