// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"io/fs"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

func recorded(t *testing.T, name string, vfs int) (fs.FS, *topology.Tree) {
	t.Helper()
	sys := machines.Sys(t, name, vfs)
	return sys, read(t, sys)
}

func read(t *testing.T, sys fs.FS) *topology.Tree {
	t.Helper()
	tree, err := topology.Read(sys)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func address(t *testing.T, text string) topology.Address {
	t.Helper()
	a, err := topology.ParseAddress(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestRead(t *testing.T) {
	t.Parallel()
	sys, tree := recorded(t, "oci-mi300x-derived", 2)
	machine, err := pool.ReadMachine(sys, tree, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(machine.GPUs) != 8 || len(machine.VFs) != 16 || len(machine.Links) != 28 || len(machine.Notes) != 0 {
		t.Errorf("%d GPUs, %d VFs, %d links, notes %q",
			len(machine.GPUs), len(machine.VFs), len(machine.Links), machine.Notes)
	}
	g, v := machine.GPUs[1], machine.VFs[3]
	if g.ID != "0000:2f:00.0" || g.Resource != "amd.com/gpu" || g.Vendor != "amd" || g.Model != "MI300X" ||
		!g.Whole() || g.Hive != "0000:11:00.0" || g.Switch != v.Switch || !g.Healthy {
		t.Errorf("the second GPU is %+v", g)
	}
	if v.ID != "0000:2a:00.2" || v.Index != 1 || v.RDMA != "mlx5_11" || v.Pool != pool.DefaultPool ||
		v.Function() != address(t, "0000:2a:00.0") {
		t.Errorf("the fourth VF is %+v", v)
	}
}

func TestPartitionsAreOfTheirCard(t *testing.T) {
	t.Parallel()
	sys, tree := recorded(t, "amd-mi300x-cpx-kfd", 0)
	machine, err := pool.ReadMachine(sys, tree, nil)
	if err != nil {
		t.Fatal(err)
	}
	cards := map[topology.Address][]string{}
	for _, g := range machine.GPUs {
		cards[g.Card] = append(cards[g.Card], g.Part)
		if g.Whole() || g.Parts != 8 && g.Parts != 7 {
			t.Errorf("%s is a GPU of %d parts", g.ID, g.Parts)
		}
	}
	want := []string{"", "1", "2", "3", "4", "5", "6", "7"}
	if got := cards[address(t, "0000:05:00.0")]; !slices.Equal(got, want) {
		t.Errorf("the parts of the first card are %q", got)
	}
	if len(cards) != 8 {
		t.Errorf("there are %d cards", len(cards))
	}
}

// What is shared is there once, what is gone is not there, what is unhealthy is.
func TestADeviceIsThereOnce(t *testing.T) {
	t.Parallel()
	sys, tree := recorded(t, "nv-a100pcie-cx6dx-vf-partial", 0)
	card, pf := address(t, "0000:9b:00.0"), address(t, "0000:9a:00.1")
	hca := pools.Device{Address: pf, HCA: "0000:9a:00.1", Selector: new(pools.Selector)}
	vf := pools.Device{ID: "0000:9a:00.2", Address: address(t, "0000:9a:00.2"), Selector: new(pools.Selector)}
	lost := pools.Device{ID: "0000:9a:00.3", Address: address(t, "0000:9a:00.3"), Fault: "gone"}
	replica := func(id string) pools.Device {
		d := hca
		d.ID = id
		return d
	}
	accelerators := &pools.ResourceConfig{DeviceType: pools.Accelerator}
	machine := pool.NewMachine(pool.MachineSources{
		Sys: sys, Tree: tree,
		GPUs: map[string][]gpu.Device{"nvidia.com/gpu.shared": {
			{ID: "GPU-1::0", Card: card}, {ID: "GPU-1::1", Card: card}, {ID: "GPU-2::0", Card: card, Gone: true},
			{ID: "GPU-3", Card: address(t, "0000:01:00.0")},
		}},
		Pools: []pools.Pool{
			{Name: "rdma/hca", Devices: []pools.Device{replica("0000:9a:00.1::0"), replica("0000:9a:00.1::1")}},
			{Name: "rdma/other", Devices: []pools.Device{replica("0000:9a:00.1::2"), vf, lost}},
			{Name: "intel.com/fpga", Devices: []pools.Device{vf}, Resource: accelerators},
		},
	})
	if got := machine.GPUs; len(got) != 1 || got[0].ID != "GPU-1" || got[0].Healthy || !got[0].Whole() {
		t.Errorf("the GPUs are %+v", machine.GPUs)
	}
	var vfs []string
	for _, v := range machine.VFs {
		vfs = append(vfs, v.Pool+" "+v.ID)
	}
	if want := []string{"rdma/hca 0000:9a:00.1", "rdma/other 0000:9a:00.2"}; !slices.Equal(vfs, want) {
		t.Errorf("the VFs are %q, want %q", vfs, want)
	}
	want := []string{
		"GPU GPU-3 is left out: sysfs has no PCI function 0000:01:00.0",
		"intel.com/fpga is left out: its accelerators are offered as GPUs",
		"nvidia.com/gpu.shared: its GPUs are handed out once each: a claim does not share a GPU by time",
		"rdma/hca: its HCAs are handed out once each: a claim does not share an HCA",
		"rdma/other: 0000:9a:00.1 belongs to rdma/hca: a device has one resource",
		"rdma/other: its HCAs are handed out once each: a claim does not share an HCA",
	}
	if diff := cmp.Diff(want, machine.Notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

func TestAHiveIsWhatLinksConnect(t *testing.T) {
	t.Parallel()
	sys, tree := recorded(t, "nv-a100pcie-cx6dx-vf-partial", 0)
	card := func(bus string) topology.Address { return address(t, "0000:"+bus+":00.0") }
	link := func(a, b string) topology.Link {
		return topology.Link{A: card(a), B: card(b), Type: topology.NVLink, Hops: 1, Count: 12}
	}
	var devices []gpu.Device
	for _, bus := range []string{"9b", "9c", "9d", "9e"} {
		devices = append(devices, gpu.Device{ID: "GPU-" + bus, Card: card(bus), Healthy: true})
	}
	machine := pool.NewMachine(pool.MachineSources{
		Sys: sys, Tree: tree, GPUs: map[string][]gpu.Device{"nvidia.com/gpu": devices},
		Links: []topology.Link{link("9d", "9c"), link("9d", "9e")},
	})
	var hives []string
	for _, g := range machine.GPUs {
		hives = append(hives, g.Hive)
	}
	if want := []string{"", "0000:9c:00.0", "0000:9c:00.0", "0000:9c:00.0"}; !slices.Equal(hives, want) {
		t.Errorf("hives are %q, want %q", hives, want)
	}
}

// In a container in exclusive mode a VF loses its RDMA device and its netdev for the node, and stays what it
// is.
func TestAVFInUseKeepsItsRDMADevice(t *testing.T) {
	t.Parallel()
	sys := functions.New()
	sys.Function("0000:0c:00.0", functions.Facts{"netdev": "ens1", "rdma": "mlx5_0"})
	sys.Function("0000:0c:00.1", functions.Facts{"pf": "0000:0c:00.0"})
	dir := functions.Dir("0000:0c:00.1")
	sys.Write(dir+"/infiniband_verbs/uverbs1/ibdev", "mlx5_1")
	vf := pools.Device{
		ID: "0000:0c:00.1", Address: address(t, "0000:0c:00.1"), PF: address(t, "0000:0c:00.0"),
		Selector: new(pools.Selector),
	}
	machine := pool.NewMachine(pool.MachineSources{
		Sys: sys.FS(), Tree: read(t, fstest.MapFS(sys)),
		Pools: []pools.Pool{{Name: "tandem.dev/rdma_vf", Devices: []pools.Device{vf}}},
	})
	if len(machine.VFs) != 1 || machine.VFs[0].RDMA != "mlx5_1" || machine.VFs[0].Netdev != "" {
		t.Errorf("VFs are %+v", machine.VFs)
	}
}

// A GPU is lacking if its function is gone, or its card was read without the GPU. A unit without a function
// is of a driver that recorded none.
func TestLacksGPU(t *testing.T) {
	t.Parallel()
	sys, tree := recorded(t, "nv-a100pcie-cx6dx-vf-partial", 0)
	card := address(t, "0000:9b:00.0")
	lacks := func(unread bool, units ...string) (lacking []string) {
		machine := pool.NewMachine(pool.MachineSources{
			Sys: sys, Tree: tree,
			GPUs:    map[string][]gpu.Device{"nvidia.com/gpu": {{ID: "MIG-1", Card: card, Part: "7-0"}}},
			MayHide: func(topology.Address) bool { return unread },
		})
		return slices.DeleteFunc(units, func(unit string) bool { return !machine.LacksGPU(unit) })
	}
	units := []string{
		"0000:9b:00.0/7-0", "0000:9b:00.0/8-0", "0000:9b:00.0", "GPU-1", "0000:01:00.0", "0000:01:00.0/7-0",
	}
	if got := lacks(false, slices.Clone(units)...); !slices.Equal(got, units[1:]) {
		t.Errorf("all cards are read: lacks %q", got)
	}
	if got := lacks(true, slices.Clone(units)...); !slices.Equal(got, units[4:]) {
		t.Errorf("no card is read: lacks %q", got)
	}
}
