// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"context"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	sysfstest "github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/topology"
)

func discover(t *testing.T, sys fs.FS, naming Naming) gpu.Inventory {
	t.Helper()
	backend, err := New(sys, naming)
	if err != nil {
		t.Fatal(err)
	}
	inventory, err := backend.Discover()
	if err != nil {
		t.Fatal(err)
	}
	return inventory
}

var addresses = cmp.Comparer(func(a, b topology.NUMANode) bool { return a == b })

func TestDiscover(t *testing.T) {
	t.Attr("parity", "amd/device-id-gpu")
	t.Attr("parity", "amd/device-id-partition")
	t.Attr("parity", "amd/device-id-partition-dot")
	t.Attr("parity", "amd/parent-of-partition")
	got := discover(t, twoCards().fs(), Single)
	first, second := topology.Address{Bus: 0x19}, topology.Address{Bus: 0xa7}
	want := gpu.Inventory{Resources: map[string][]gpu.Device{"amd.com/gpu": {
		{ID: "0000:19:00.0", Card: first, NUMA: topology.Node(0),
			Nodes: []string{"/dev/dri/card1", "/dev/dri/renderD128"}, Healthy: true},
		{ID: "0000:a7:00.0", Card: second, NUMA: topology.Node(1),
			Nodes: []string{"/dev/dri/card2", "/dev/dri/renderD129"}, Healthy: true},
		{ID: "amdgpu_xcp.3", Card: second, NUMA: topology.Node(1), Part: "3",
			Nodes: []string{"/dev/dri/card5", "/dev/dri/renderD132"}, Healthy: true},
		{ID: "amdgpu_xcp_0", Card: second, NUMA: topology.Node(1), Part: "1",
			Nodes: []string{"/dev/dri/card3", "/dev/dri/renderD130"}, Healthy: true},
	}}}
	if diff := cmp.Diff(want, got, addresses); diff != "" {
		t.Error(diff)
	}
}

func TestResourceNames(t *testing.T) {
	t.Attr("parity", "amd/resource-name-single")
	t.Attr("parity", "amd/resource-name-mixed")
	cpx := twoCards().add(partitioned("0000:a7:00.0", "CPX", "NPS4"))
	both := twoCards().add(partitioned("0000:a7:00.0", "CPX", "NPS4")).
		add(partitioned("0000:19:00.0", "SPX", "NPS1"))
	half := twoCards().add(sysfs{"devices/pci0000:00/0000:a7:00.0/current_compute_partition": "CPX"})
	none := sysfs{"module/amdgpu/refcnt": "0"}
	for _, c := range []struct {
		name   string
		sys    sysfs
		naming Naming
		want   map[string]int // devices by resource
	}{
		{"whole, single", twoCards(), Single, map[string]int{"amd.com/gpu": 4}},
		{"whole, mixed", twoCards(), Mixed, map[string]int{"amd.com/gpu": 4}},
		{"parts, single", cpx, Single, map[string]int{"amd.com/gpu": 4}},
		{"parts, mixed", cpx, Mixed, map[string]int{"amd.com/gpu": 1, "amd.com/cpx_nps4": 3}},
		{"different parts, mixed", both, Mixed, map[string]int{"amd.com/spx_nps1": 1, "amd.com/cpx_nps4": 3}},
		{"no memory partitioning", half, Mixed, map[string]int{"amd.com/gpu": 4}},
		{"no GPU, single", none, Single, map[string]int{"amd.com/gpu": 0}},
		{"no GPU, mixed", none, Mixed, map[string]int{"amd.com/gpu": 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := map[string]int{}
			for resource, devices := range discover(t, c.sys.fs(), c.naming).Resources {
				got[resource] = len(devices)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOddDevices(t *testing.T) {
	sys := twoCards().
		add(function("0000:c3:00.0", "-1", "card7", "renderD134")). // a virtual machine without NUMA
		add(function("0000:c4:00.0", "")).                          // bound, no DRM minor left for it
		add(function("10000:c5:00.0", "1", "card8", "renderD135")). // a wide domain
		add(minors("devices/platform/amdgpu_xcp_7", "card9", "renderD136")).
		add(gpuNode(5, 0, 0xee00, 136))
	inventory := discover(t, sys.fs(), Single)
	devices := map[string]gpu.Device{}
	for _, d := range inventory.Resources["amd.com/gpu"] {
		devices[d.ID] = d
	}
	if _, known := devices["0000:c3:00.0"].NUMA.Number(); known || !devices["0000:c3:00.0"].Healthy {
		t.Errorf("NUMA -1: %+v", devices["0000:c3:00.0"])
	}
	if d := devices["0000:c4:00.0"]; d.ID == "" || d.Healthy || len(d.Nodes) > 0 {
		t.Errorf("no DRM minor: %+v", d)
	}
	if d := devices["10000:c5:00.0"]; d.Card != (topology.Address{Domain: 0x10000, Bus: 0xc5}) {
		t.Errorf("wide domain: %+v", d)
	}
	if _, listed := devices["amdgpu_xcp_7"]; listed {
		t.Error("a partition of a card that is not there is listed")
	}
	want := []string{
		"amdgpu_xcp_7: left out: its card 0000:ee:00.0 is not driven by amdgpu",
		"0000:c4:00.0: no render node: unhealthy",
	}
	if diff := cmp.Diff(want, inventory.Notes); diff != "" {
		t.Error(diff)
	}
}

// TestPartitionOfCardWithoutNUMA: AMD's own plugin drops it.
func TestPartitionOfCardWithoutNUMA(t *testing.T) {
	t.Attr("parity", "amd/partition-numa-minus-one")
	t.Attr("parity", "amd/topology")
	sys := twoCards().add(function("0000:a7:00.0", "-1", "card2", "renderD129"))
	found := map[string]bool{}
	for _, d := range discover(t, sys.fs(), Single).Resources["amd.com/gpu"] {
		if _, known := d.NUMA.Number(); known != (d.Card.Bus == 0x19) {
			t.Errorf("%+v", d)
		}
		found[d.ID] = d.Healthy
	}
	if !found["amdgpu_xcp_0"] || !found["amdgpu_xcp.3"] {
		t.Errorf("found %v", found)
	}
}

// TestUnhealthyWithoutKFD: a node of the KFD topology counts that is a GPU's, and every GPU is healthy by it.
func TestUnhealthyWithoutKFD(t *testing.T) {
	t.Attr("parity", "amd/health-simple")
	sys := function("0000:19:00.0", "0", "card1", "renderD128")
	for name, c := range map[string]struct {
		sys     sysfs
		healthy bool
	}{
		"no KFD":      {sys, false},
		"CPUs only":   {maps.Clone(sys).add(cpuNode(0)), false},
		"GPU":         {maps.Clone(sys).add(cpuNode(0)).add(gpuNode(1, 0, 0x1900, 128)), true},
		"another GPU": {maps.Clone(sys).add(cpuNode(0)).add(gpuNode(1, 0, 0x2900, 129)), true},
	} {
		inventory := discover(t, c.sys.fs(), Single)
		told := strings.Contains(strings.Join(inventory.Notes, ""), "unhealthy until amdkfd has one")
		if d := inventory.Resources["amd.com/gpu"][0]; d.Healthy != c.healthy || told == c.healthy ||
			(len(inventory.Notes) == 0) != c.healthy {
			t.Errorf("%s: %+v, %v", name, d, inventory.Notes)
		}
	}
}

// TestDriverGoesAndReturns: what is found without the driver is nothing, which is no failure to look, and not
// all that there is.
func TestDriverGoesAndReturns(t *testing.T) {
	sys := twoCards().fs()
	backend, err := New(sys, Single)
	if err != nil {
		t.Fatal(err)
	}
	before, err := backend.Discover()
	if err != nil {
		t.Fatal(err)
	}
	loaded := maps.Clone(sys)
	maps.DeleteFunc(sys, func(file string, _ *fstest.MapFile) bool {
		return strings.HasPrefix(file, "module/") || strings.HasPrefix(file, "class/kfd") ||
			strings.Contains(file, "/drm/")
	})
	without, err := backend.Discover()
	if err != nil || len(without.Resources) > 0 || len(without.Notes) != 1 || !without.Partial {
		t.Errorf("without the driver: %v, %v", without, err)
	}
	maps.Copy(sys, loaded)
	after, err := backend.Discover()
	if diff := cmp.Diff(before, after, addresses); diff != "" || err != nil {
		t.Errorf("with the driver again: %v\n%s", err, diff)
	}
}

// failing is a file system in which reading one file fails.
func failing(files fs.FS, file string, err error) fs.FS {
	return sysfstest.Faulty{Files: files, Fail: func(call, name string) error {
		if name == file && slices.Contains([]string{"open", "read", "list"}, call) {
			return err
		}
		return nil
	}}
}

func TestHiddenKFD(t *testing.T) {
	t.Attr("parity", "amd/helm-unprivileged")
	// What a container without the GPUs in its device cgroup sees.
	sys := twoCards().add(link("io_links", 1, 0, 2, 11, 15, 1, 1))
	hidden := failing(sys.fs(), kfdFile(4, "properties"), syscall.EPERM)
	inventory := discover(t, hidden, Single)
	var ids []string
	for _, d := range inventory.Resources["amd.com/gpu"] {
		if ids = append(ids, d.ID); !d.Healthy {
			t.Errorf("%s is unhealthy", d.ID)
		}
	}
	if want := []string{"0000:19:00.0", "0000:a7:00.0", "amdgpu_xcp_0"}; !slices.Equal(ids, want) {
		t.Errorf("devices %v, want %v", ids, want)
	}
	if len(inventory.Notes) != 2 || !strings.Contains(inventory.Notes[0], "privileged") {
		t.Errorf("notes %q", inventory.Notes)
	}
	hidden = failing(sys.fs(), kfdFile(1, "io_links/0/properties"), syscall.EPERM)
	if links, err := ReadLinks(hidden); err != nil || len(links) != 0 {
		t.Errorf("links %v, %v", links, err)
	}
}

func TestBadMachines(t *testing.T) {
	numa := "module/amdgpu/drivers/pci:amdgpu/0000:19:00.0/numa_node"
	for _, c := range []struct {
		name string
		sys  fs.FS
		want []string
	}{
		{"driver not loaded", fstest.MapFS{}, []string{"module/amdgpu", "not loaded"}},
		{"unreadable file", failing(twoCards().fs(), numa, syscall.EIO),
			[]string{"numa_node", "0000:19:00.0", "input/output error"}},
		{"no number", twoCards().add(sysfs{"devices/pci0000:00/0000:19:00.0/numa_node": "first"}).fs(),
			[]string{"numa_node", "0000:19:00.0", `"first"`}},
		{"unreadable driver", failing(twoCards().fs(), functions, syscall.EACCES),
			[]string{"list AMD GPUs", "permission denied"}},
		{"unreadable platform", failing(twoCards().fs(), platform, syscall.EACCES),
			[]string{"list AMD GPU partitions", "permission denied"}},
		{"different partitions",
			twoCards().add(partitioned("0000:a7:00.0", "CPX", "NPS4")).
				add(partitioned("0000:19:00.0", "SPX", "NPS1")).fs(),
			[]string{"0000:19:00.0 is spx_nps1", "amdgpu_xcp_0 is cpx_nps4", "--resource_naming_strategy=mixed"}},
		{"KFD node without properties", twoCards().add(sysfs{kfdFile(5, "gpu_id"): "1"}).fs(),
			[]string{"KFD node 5", "properties"}},
		{"KFD property", twoCards().add(sysfs{kfdFile(1, "properties"): "simd_count many"}).fs(),
			[]string{"KFD node 1", "simd_count", `"many"`}},
		{"KFD link without properties", twoCards().add(sysfs{kfdFile(1, "p2p_links/0/x"): ""}).fs(),
			[]string{"link 0 of KFD node 1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			backend, err := New(c.sys, Single)
			if err == nil {
				_, err = backend.Discover()
			}
			if err == nil {
				_, err = backend.Links()
			}
			if err == nil {
				t.Fatal("no error")
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q lacks %q", err, part)
				}
			}
		})
	}
	if _, err := New(fstest.MapFS{}, "double"); err == nil ||
		!strings.Contains(err.Error(), "--resource_naming_strategy") {
		t.Errorf("naming: %v", err)
	}
}

func without(s sysfs, part string) sysfs {
	maps.DeleteFunc(s, func(path, _ string) bool { return strings.Contains(path, part) })
	return s
}

// TestHoleInKFD: what a missing node stands for is left out, nothing else.
func TestHoleInKFD(t *testing.T) {
	sys := without(twoCards(), "nodes/3/").
		add(link("io_links", 1, 0, 2, 11, 15, 1, 1)).
		add(link("io_links", 1, 1, 3, 11, 15, 1, 1)).
		add(link("io_links", 1, 2, 64, 11, 15, 1, 1)).fs()
	inventory := discover(t, sys, Single)
	var ids []string
	for _, d := range inventory.Resources["amd.com/gpu"] {
		if ids = append(ids, d.ID); !d.Healthy {
			t.Errorf("%s is unhealthy", d.ID)
		}
	}
	if want := []string{"0000:19:00.0", "0000:a7:00.0", "amdgpu_xcp.3"}; !slices.Equal(ids, want) {
		t.Errorf("devices %v, want %v", ids, want)
	}
	if len(inventory.Notes) != 1 || !strings.Contains(inventory.Notes[0], "node 3 before it is missing") {
		t.Errorf("notes %q", inventory.Notes)
	}
	if links, err := ReadLinks(sys); err != nil || len(links) != 1 {
		t.Errorf("links %v, %v", links, err)
	}
}

func TestDeviceVanishesWhileRead(t *testing.T) {
	sys := twoCards().fs()
	delete(sys, "devices/pci0000:00/0000:19:00.0/numa_node")
	for path := range sys {
		if strings.HasPrefix(path, "devices/pci0000:00/0000:19:00.0/") {
			delete(sys, path) // the link is still listed, its target is gone
		}
	}
	for _, d := range discover(t, sys, Single).Resources["amd.com/gpu"] {
		if d.ID == "0000:19:00.0" {
			t.Error("a vanished GPU is listed")
		}
	}
	removed := failing(twoCards().fs(), "module/amdgpu/drivers/pci:amdgpu/0000:19:00.0/numa_node",
		syscall.ENODEV)
	if d := discover(t, removed, Single).Resources["amd.com/gpu"][0]; d.NUMA != (topology.NUMANode{}) {
		t.Errorf("%+v", d)
	}
}

// golden is the answer of AMD's own plugin on the wire for 0000:19:00.0 (card1, renderD128) and amdgpu_xcp_3
// (card5, renderD132): DeviceSpecs (field 3) of container path, host path and permissions; nothing else.
func golden() []byte {
	var wire []byte
	for _, path := range []string{
		"/dev/kfd", "/dev/dri/card1", "/dev/dri/renderD128", "/dev/dri/card5", "/dev/dri/renderD132",
	} {
		n := byte(len(path))
		wire = append(wire, 0x1a, 2*(2+n)+4, 0x0a, n)
		wire = append(wire, path...)
		wire = append(wire, 0x12, n)
		wire = append(wire, path...)
		wire = append(wire, 0x1a, 2, 'r', 'w')
	}
	return wire
}

func TestAllocateGolden(t *testing.T) {
	t.Attr("parity", "amd/allocate-devices")
	t.Attr("parity", "amd/allocate-no-env")
	sys := twoCards().
		add(minors("devices/platform/amdgpu_xcp_3", "card5", "renderD132"))
	for path := range sys {
		if strings.Contains(path, "amdgpu_xcp.3") {
			delete(sys, path)
		}
	}
	backend, err := New(sys.fs(), Single)
	if err != nil {
		t.Fatal(err)
	}
	inventory, err := backend.Discover()
	if err != nil {
		t.Fatal(err)
	}
	var chosen []gpu.Device
	for _, id := range []string{"0000:19:00.0", "amdgpu_xcp_3"} {
		for _, d := range inventory.Resources["amd.com/gpu"] {
			if d.ID == id {
				chosen = append(chosen, d)
			}
		}
	}
	wire, err := proto.MarshalOptions{Deterministic: true}.Marshal(deviceplugin.Response(backend.Edits(chosen)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(golden(), wire); diff != "" {
		t.Error(diff)
	}
	if answer := backend.Edits(nil); len(answer.Nodes) != 1 ||
		answer.Nodes[0].Host != "/dev/kfd" {
		t.Errorf("no device: %v", answer)
	}
}

func TestReadLinks(t *testing.T) {
	const xgmi, pcie = 11, 2
	card := func(bus uint8) topology.Address { return topology.Address{Bus: bus} }
	sys := sysfs{}.add(cpuNode(0)).
		add(gpuNode(1, 0, 0x1900, 128)).
		add(gpuNode(2, 0, 0x2900, 129)).
		add(gpuNode(3, 0, 0xa700, 130)).
		add(gpuNode(4, 0, 0xa701, 131)).
		add(link("io_links", 1, 0, 0, xgmi, 15, 36000, 36000)). // to a CPU
		add(link("io_links", 1, 1, 2, xgmi, 15, 50000, 200000)).
		add(link("io_links", 2, 1, 1, xgmi, 15, 50000, 200000)).
		add(link("p2p_links", 1, 0, 3, xgmi, 30, 50000, 50000)).
		add(link("io_links", 3, 0, 4, xgmi, 13, 819200, 819200)). // within a card
		add(link("io_links", 2, 2, 3, xgmi, 41, 0, 0)).           // between partitions of two cards
		add(link("p2p_links", 2, 0, 4, xgmi, 56, 0, 0)).          // likewise, one card further
		add(link("p2p_links", 1, 1, 4, pcie, 40, 0, 0))
	want := []topology.Link{
		{A: card(0x19), B: card(0x29), Type: topology.XGMI, Hops: 1, Count: 4},
		{A: card(0x19), B: card(0xa7), Type: topology.XGMI, Hops: 2, Count: 1},
		{A: card(0x29), B: card(0xa7), Type: topology.XGMI, Hops: 1, Count: 1},
	}
	got, err := ReadLinks(sys.fs())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if links, err := ReadLinks(fstest.MapFS{}); links != nil || err != nil {
		t.Errorf("without KFD: %v, %v", links, err)
	}
}

// told is a Library with weights of ways between cards.
type told map[[2]topology.Address]uint64

func (w told) Facts(context.Context) (Facts, error) { return Facts{Weights: w}, nil }

// TestLibraryAddsLinks: the library adds the links over XGMI that sysfs does not show, and no others.
func TestLibraryAddsLinks(t *testing.T) {
	a, b, c := topology.Address{Bus: 0x19}, topology.Address{Bus: 0xa7}, topology.Address{Bus: 0xb0}
	sys := twoCards().add(link("io_links", 1, 0, 2, 11, 15, 50000, 50000)).fs()
	backend, err := New(sys, Single)
	if err != nil {
		t.Fatal(err)
	}
	backend.Consult("the library", told{
		{a, b}: 15, {a, c}: 30, {b, c}: 1, {c, {Bus: 0xb1}}: 40, {c, {Bus: 0xb2}}: 0, {c, {Bus: 0xb3}}: 60,
	})
	want := []topology.Link{
		{A: a, B: b, Type: topology.XGMI, Hops: 1, Count: 1}, {A: a, B: c, Type: topology.XGMI, Hops: 2, Count: 1},
	}
	got, err := backend.Links()
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("links: %v\n%s", err, diff)
	}
}

func TestCardAddress(t *testing.T) {
	t.Attr("parity", "amd/parent-of-partition")
	for _, c := range []struct {
		domain, location uint64
		want             string
	}{
		{0, 1280, "0000:05:00.0"},
		{0, 1281, "0000:05:00.0"},
		{0, 1287, "0000:05:00.0"},
		{1, 0xe5ff, "0001:e5:1f.0"},
		{0x10000, 0x0100, "10000:01:00.0"},
	} {
		if got := CardAddress(c.domain, c.location).String(); got != c.want {
			t.Errorf("%d, %d: %s, want %s", c.domain, c.location, got, c.want)
		}
	}
}

func FuzzProperties(f *testing.F) {
	f.Add("simd_count 152\nlocation_id 1281\n")
	f.Add("simd_count -1")
	f.Fuzz(func(t *testing.T, content string) {
		got, err := parseProperties(content, []string{"simd_count", "location_id"})
		if err != nil && got != nil {
			t.Errorf("both %v and %v", got, err)
		}
		for name, n := range got {
			if !strings.Contains(content, name) || !strings.Contains(content, strconv.FormatUint(n, 10)) {
				t.Errorf("%s %d is not in %q", name, n, content)
			}
		}
	})
}

// TestNodesOfTheHost: a GPU without one of its nodes, or without KFD's, is unhealthy, and the module is
// named.
func TestNodesOfTheHost(t *testing.T) {
	sys := twoCards().fs()
	backend, err := New(sys, Single)
	if err != nil {
		t.Fatal(err)
	}
	discover := func(dev fs.FS) map[string]gpu.Device {
		backend.SeeNodes(dev)
		inventory, err := backend.Discover()
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]gpu.Device{}
		for _, d := range inventory.Resources[whole] {
			found[d.ID] = d
		}
		return found
	}
	dev := fstest.MapFS{"kfd": {}}
	lacking := ""
	for id, d := range discover(nil) {
		if !d.Healthy {
			t.Errorf("%s is unhealthy without a folder: %s", id, d.Reason)
		}
		for _, path := range d.Nodes {
			dev[strings.TrimPrefix(path, "/dev/")] = &fstest.MapFile{}
		}
		lacking = max(lacking, id)
	}
	gone := discover(dev)[lacking].Nodes[0]
	delete(dev, strings.TrimPrefix(gone, "/dev/"))
	for id, d := range discover(dev) {
		want := map[bool]string{true: "no device node " + gone + ": load the kernel module amdgpu"}[id == lacking]
		if d.Reason != want || d.Healthy != (want == "") {
			t.Errorf("%s: %q, want %q", id, d.Reason, want)
		}
	}
	delete(dev, "kfd")
	for id, d := range discover(dev) {
		if d.Healthy || !strings.Contains(d.Reason, "/dev/kfd") {
			t.Errorf("%s without KFD's node: %q", id, d.Reason)
		}
	}
}

// A partition that the KFD topology does not show now is not gone: the kernel hides nodes from a container
// that is no longer privileged, and a node is missing while the partitioning of another GPU changes. The
// whole GPU is read completely.
func TestUnshownPartitionIsNotGone(t *testing.T) {
	t.Parallel()
	split := func() sysfs { return twoCards().add(partitioned("0000:a7:00.0", "CPX", "NPS4")) }
	for name, sys := range map[string]fs.FS{
		"hidden":           failing(split().fs(), kfdFile(4, "properties"), syscall.EPERM),
		"a node is absent": without(split(), "nodes/3/").fs(),
	} {
		b, err := New(split().fs(), Single)
		if err != nil {
			t.Fatal(err)
		}
		before, err := b.Discover()
		if err != nil || before.Partial {
			t.Fatalf("partial %t, %v", before.Partial, err)
		}
		b.sys = sys
		now, err := b.Discover()
		lost := len(before.Resources[whole]) - len(now.Resources[whole])
		if err != nil || lost != 1 || !now.Partial || !slices.Equal(now.Read, []topology.Address{{Bus: 0x19}}) {
			t.Errorf("%s: %d are lost, partial %t, read %v: %v", name, lost, now.Partial, now.Read, err)
		}
	}
}
