// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package nvidia

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/test/nvml"
	"github.com/tandem-k8s/tandem/topology"
)

func TestRecordedMachines(t *testing.T) {
	t.Attr("parity", "nvidia/device-id-full")
	t.Attr("parity", "nvidia/topology")
	for _, c := range []struct {
		machine string
		numa    string // of every GPU in turn
		links   int    // pairs of GPUs that are linked
		count   int    // links of a pair
		memory  uint64 // GiB
	}{
		{"nv-h100-oci", "0 0 0 0 1 1 1 1", 28, 18, 79},
		{"nv-h100-aws-p5", "0 0 0 0 1 1 1 1", 28, 18, 79},
		{"nv-h800-8x8", "0 0 0 0 1 1 1 1", 28, 8, 79},
		{"nv-h200-vm-flat", "-1 -1 -1 -1 -1 -1 -1 -1", 28, 18, 140},
		{"nv-4xrtx6000ada-2cx7", "", 0, 0, 47},
		{"nv-a100pcie-cx6dx-vf-partial", "", 0, 0, 80},
	} {
		t.Run(c.machine, func(t *testing.T) {
			n := record(t, c.machine, nil)
			backend, inventory := n.discover(t)
			devices := inventory.Resources["nvidia.com/gpu"]
			if len(devices) != len(n.Machine.GPUs) || len(inventory.Resources) != 1 || inventory.Partial ||
				len(inventory.Notes) != 0 {
				t.Fatalf("%d devices of %d, resources %v, notes %v", len(devices), len(n.Machine.GPUs),
					inventory.Resources, inventory.Notes)
			}
			var numa []string
			for i, d := range devices {
				numa = append(numa, d.NUMA.String())
				want := gpu.Device{
					ID: n.Machine.GPUs[i].UUID, Card: n.Machine.GPUs[i].Address, NUMA: d.NUMA,
					Nodes: []string{fmt.Sprintf("/dev/nvidia%d", i)}, Index: fmt.Sprint(i),
					VRAM: n.Machine.GPUs[i].Memory << 20, Healthy: true,
				}
				if diff := cmp.Diff(want, d,
					cmp.Comparer(func(a, b topology.NUMANode) bool { return a == b })); diff != "" {
					t.Error(diff)
				}
				if d.VRAM>>30 != c.memory {
					t.Errorf("%d GiB, want %d", d.VRAM>>30, c.memory)
				}
			}
			if got := strings.Join(numa, " "); c.numa != "" && got != c.numa {
				t.Errorf("NUMA nodes %s, want %s", got, c.numa)
			}
			links, err := backend.Links()
			if err != nil || len(links) != c.links {
				t.Errorf("%d links, %v", len(links), err)
			}
			for _, l := range links {
				if l.Count != c.count || l.Type != topology.NVLink || l.Hops != 1 || l.A.Compare(l.B) >= 0 {
					t.Errorf("link %+v", l)
				}
			}
		})
	}
}

// bridged is a machine of four A100 with NVLink bridges between two and two, of which one has lost half its
// links.
func bridged(m *nvml.Machine) {
	join := func(a, b, there, back int) {
		m.GPUs[a].Links = map[topology.Address]int{m.GPUs[b].Address: there}
		m.GPUs[b].Links = map[topology.Address]int{m.GPUs[a].Address: back}
	}
	join(0, 1, 12, 12)
	join(2, 3, 12, 6)
}

func TestBridges(t *testing.T) {
	n := record(t, "nv-a100pcie-cx6dx-vf-partial", bridged)
	backend, _ := n.discover(t)
	links, err := backend.Links()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range links {
		got = append(got, fmt.Sprint(l.A, " ", l.B, " ", l.Count))
	}
	want := []string{"0000:9b:00.0 0000:9c:00.0 12", "0000:9d:00.0 0000:9e:00.0 6"}
	if !slices.Equal(got, want) {
		t.Errorf("links %v, want %v", got, want)
	}
}

// summary writes an inventory as "gpu 8, mig-1g.10gb 7!": how many devices under every name, ! for unhealthy
// ones among them.
func summary(inventory gpu.Inventory) string {
	var words []string
	for _, resource := range slices.Sorted(maps.Keys(inventory.Resources)) {
		mark := ""
		if slices.ContainsFunc(inventory.Resources[resource], func(d gpu.Device) bool { return !d.Healthy }) {
			mark = "!"
		}
		words = append(words,
			fmt.Sprint(strings.TrimPrefix(resource, vendor), " ", len(inventory.Resources[resource]), mark))
	}
	return strings.Join(words, ", ")
}

// The layouts of MIG that the tests know, on the 80 GB of an H100.
func sevenths(m *nvml.Machine) { // all GPUs in seven
	for i := range m.GPUs {
		m.GPUs[i].Split(7, 0, 9984)
	}
}

// GPU 0 in seven, GPU 1 in two of three and one with media engines, the others whole
func various(m *nvml.Machine) {
	m.GPUs[0].Split(7, 0, 9984)
	m.GPUs[1].Split(2, 2, 40320)
	m.GPUs[1].Split(1, 7, 9984)
}

func TestMIGStrategies(t *testing.T) {
	t.Attr("parity", "nvidia/mig-strategy-none")
	t.Attr("parity", "nvidia/mig-strategy-single")
	t.Attr("parity", "nvidia/mig-strategy-mixed")
	none := func(*nvml.Machine) {}
	empty := func(m *nvml.Machine) { m.GPUs[3].MIG = 1 }
	halved := func(m *nvml.Machine) { // a GPU instance with two compute instances
		m.GPUs[0].Split(2, 2, 40320)
		m.GPUs[0].Slices[0].ComputeProfile, m.GPUs[0].Slices[1].ComputeProfile = 0, 0
	}
	two := func(m *nvml.Machine) {
		sevenths(m)
		m.GPUs[5].Slices = nil
		m.GPUs[5].Split(2, 2, 40320)
	}
	for _, c := range []struct {
		name     string
		layout   func(*nvml.Machine)
		strategy string
		want     string // summary, or parts of the error after "error:"
	}{
		{"whole", none, migNone, "gpu 8"},
		{"whole", none, migSingle, "gpu 8"},
		{"whole", none, migMixed, "gpu 8"},
		{"sevenths", sevenths, migNone, "gpu 8"},
		{"sevenths", sevenths, migSingle, "gpu 56"},
		{"sevenths", sevenths, migMixed, "mig-1g.10gb 56"},
		{"various", various, migNone, "gpu 8"},
		{"various", various, migSingle,
			"error: differ: 1g.10gb on GPU 0 (0000:0f:00.0), 3g.40gb on GPU 1"},
		{"various", various, migMixed, "gpu 6, mig-1g.10gb 7, mig-1g.10gb.me 1, mig-3g.40gb 2"},
		{"one of another kind", two, migSingle,
			"error: differ: 1g.10gb on GPU 0 (0000:0f:00.0), 3g.40gb on GPU 5"},
		{"some whole", func(m *nvml.Machine) { m.GPUs[2].Split(7, 0, 9984) }, migSingle,
			"error: MIG is on for GPU 2 (0000:44:00.0) and off for GPU 7 (0000:d8:00.0)"},
		{"without devices", empty, migSingle, "error: no MIG device on GPU 3 (0000:5b:00.0)"},
		{"without devices", empty, migMixed, "gpu 7"},
		{"shared GPU instance", halved, migMixed, "gpu 7"},
	} {
		t.Run(c.name+" "+c.strategy, func(t *testing.T) {
			n := record(t, "nv-h100-oci", c.layout)
			if want, bad := strings.CutPrefix(c.want, "error: "); bad {
				err := n.fails(t, "--mig-strategy="+c.strategy)
				if err == nil || !strings.Contains(err.Error(), want) ||
					!strings.Contains(err.Error(), "--mig-strategy=mixed") {
					t.Errorf("error %v, want %q", err, want)
				}
				return
			}
			_, inventory := n.discover(t, "--mig-strategy="+c.strategy)
			if got := summary(inventory); got != c.want {
				t.Errorf("%s, want %s; notes %q", got, c.want, inventory.Notes)
			}
		})
	}
}

func TestMIGDevice(t *testing.T) {
	t.Attr("parity", "nvidia/device-id-mig")
	t.Attr("parity", "nvidia/topology")
	n := record(t, "nv-h100-oci", various)
	_, inventory := n.discover(t, "--mig-strategy=mixed", "--pass-device-specs")
	got := inventory.Resources["nvidia.com/mig-3g.40gb"][1]
	want := gpu.Device{
		ID: n.Machine.GPUs[1].Slices[1].UUID, Card: n.Machine.GPUs[1].Address, NUMA: topology.Node(0),
		Nodes: []string{"/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap19", "/dev/nvidia-caps/nvidia-cap20"},
		Part:  "8-0", Index: "1:1", VRAM: 81559 << 20, Healthy: true,
	}
	if diff := cmp.Diff(want, got,
		cmp.Comparer(func(a, b topology.NUMANode) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	if !strings.HasPrefix(got.ID, "MIG-") {
		t.Errorf("ID %s", got.ID)
	}
}

func TestLostGPU(t *testing.T) {
	n := record(t, "nv-h100-oci", func(m *nvml.Machine) { m.GPUs[3].State = nvml.GPUIsLost })
	_, inventory := n.discover(t)
	if got := summary(inventory); got != "gpu 7" || !inventory.Partial || len(inventory.Notes) != 1 ||
		!strings.Contains(inventory.Notes[0], "GPU 3: left out") {
		t.Errorf("%s, notes %q", got, inventory.Notes)
	}
}

func TestWideDomain(t *testing.T) {
	for id, want := range map[string]string{
		"00000000:0F:00.0": "0000:0f:00.0", "00010000:C1:00.0": "10000:c1:00.0", "0000A9E1:00:00.0": "a9e1:00:00.0",
	} {
		got, err := parseBusID(id)
		if err != nil || got.String() != want {
			t.Errorf("%s: %s, %v, want %s", id, got, err, want)
		}
	}
}

func TestSharing(t *testing.T) {
	n := record(t, "nv-a100pcie-cx6dx-vf-partial", nil)
	file := write(t, "version: v1\nsharing:\n  timeSlicing:\n    resources:\n"+
		"    - {name: nvidia.com/gpu, replicas: 3}\n    - {name: nvidia.com/mig-1g.10gb, replicas: 2}\n")
	_, inventory := n.discover(t, "--config-file="+file)
	var ids []string
	for _, d := range inventory.Resources["nvidia.com/gpu"] {
		ids = append(ids, d.ID)
		if d.Card == (topology.Address{}) || !d.Healthy {
			t.Errorf("device %+v", d)
		}
	}
	var want []string
	for _, g := range n.Machine.GPUs {
		want = append(want, g.UUID+"::0", g.UUID+"::1", g.UUID+"::2")
	}
	if !slices.Equal(ids, want) ||
		!slices.Equal(inventory.Notes, []string{"sharing.timeSlicing: nvidia.com/mig-1g.10gb has no device here"}) {
		t.Errorf("%v, notes %v", ids, inventory.Notes)
	}
	file = write(t,
		`{"sharing": {"timeSlicing": {"renameByDefault": true, "resources": [{"name": "gpu", "replicas": 10}]}}}`)
	if _, inventory = n.discover(t, "--config-file="+file); summary(inventory) != "gpu.shared 40" {
		t.Errorf("renamed: %s", summary(inventory))
	}
}
