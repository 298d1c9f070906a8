// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sharing are the options of Kubernetes 1.36 and later.
var sharing = pool.Options{Counters: true, Taints: true}

// published are the names of the devices in the order in which the scheduler sees them.
func published(p pool.Pool) (names []string) {
	for _, slice := range p.Slices {
		for _, d := range slice.Devices {
			names = append(names, d.Name)
		}
	}
	return names
}

// device finds a device of a pool.
func device(t *testing.T, p pool.Pool, name string) resourceapi.Device {
	t.Helper()
	for _, slice := range p.Slices {
		for _, d := range slice.Devices {
			if d.Name == name {
				return d
			}
		}
	}
	t.Fatalf("%s is not published; there are %v", name, published(p))
	return resourceapi.Device{}
}

// values are the attributes of a device as text.
func values(d resourceapi.Device) map[string]string {
	text := map[string]string{}
	for name, a := range d.Attributes {
		if a.IntValue != nil {
			text[string(name)] = fmt.Sprint(*a.IntValue)
		} else {
			text[string(name)] = *a.StringValue
		}
	}
	return text
}

// TestOrder: the scheduler takes the first devices that fit. Pairs come first, by NUMA node and switch. GPUs
// and VFs alone follow in the same order, so that claims for either leave whole pairs; GPUs without a VF of
// their own precede the others, as VFs without a GPU do; VFs go round the PFs, index by index.
func TestOrder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		machine string
		vfs     int
		want    string
	}{
		// the first VF of each PF is reserved for the GPU of its switch
		{"oci-mi300x-derived", 3, `
			pair-11-00-0 pair-2f-00-0 pair-46-00-0 pair-5d-00-0 pair-8b-00-0 pair-aa-00-0 pair-c2-00-0 pair-da-00-0
			gpu-11-00-0 gpu-2f-00-0 gpu-46-00-0 gpu-5d-00-0 gpu-8b-00-0 gpu-aa-00-0 gpu-c2-00-0 gpu-da-00-0
			vf-0c-00-2 vf-2a-00-2 vf-41-00-2 vf-58-00-2 vf-86-00-2 vf-a5-00-2 vf-bd-00-2 vf-d5-00-2
			vf-0c-00-3 vf-2a-00-3 vf-41-00-3 vf-58-00-3 vf-86-00-3 vf-a5-00-3 vf-bd-00-3 vf-d5-00-3`},
		// four GPUs and two VFs on a switch
		{"amd-mi250-16gcd-8nic", 1, `
			pair-4e-00-0-4b-00-1 pair-51-00-0-4b-00-1 pair-56-00-0-5a-00-1 pair-59-00-0-5a-00-1
			pair-0e-00-0-0b-00-1 pair-11-00-0-0b-00-1 pair-16-00-0-1a-00-1 pair-19-00-0-1a-00-1
			pair-cf-00-0-cc-00-1 pair-d2-00-0-cc-00-1 pair-d7-00-0-db-00-1 pair-da-00-0-db-00-1
			pair-8f-00-0-8c-00-1 pair-92-00-0-8c-00-1 pair-97-00-0-9b-00-1 pair-9a-00-0-9b-00-1
			gpu-51-00-0 gpu-59-00-0 gpu-11-00-0 gpu-19-00-0 gpu-d2-00-0 gpu-da-00-0 gpu-92-00-0 gpu-9a-00-0
			gpu-4e-00-0 gpu-56-00-0 gpu-0e-00-0 gpu-16-00-0 gpu-cf-00-0 gpu-d7-00-0 gpu-8f-00-0 gpu-97-00-0
			vf-4b-00-1 vf-5a-00-1 vf-0b-00-1 vf-1a-00-1 vf-cc-00-1 vf-db-00-1 vf-8c-00-1 vf-9b-00-1`},
		// four of each, VFs of two PFs
		{"amd-mi250-16gcd-8nic", 2, `
			pair-4e-00-0-4b-00-1 pair-51-00-0-4b-00-2 pair-56-00-0-5a-00-1 pair-59-00-0-5a-00-2
			pair-0e-00-0-0b-00-1 pair-11-00-0-0b-00-2 pair-16-00-0-1a-00-1 pair-19-00-0-1a-00-2
			pair-cf-00-0-cc-00-1 pair-d2-00-0-cc-00-2 pair-d7-00-0-db-00-1 pair-da-00-0-db-00-2
			pair-8f-00-0-8c-00-1 pair-92-00-0-8c-00-2 pair-97-00-0-9b-00-1 pair-9a-00-0-9b-00-2
			gpu-4e-00-0 gpu-51-00-0 gpu-56-00-0 gpu-59-00-0 gpu-0e-00-0 gpu-11-00-0 gpu-16-00-0 gpu-19-00-0
			gpu-cf-00-0 gpu-d2-00-0 gpu-d7-00-0 gpu-da-00-0 gpu-8f-00-0 gpu-92-00-0 gpu-97-00-0 gpu-9a-00-0
			vf-4b-00-1 vf-5a-00-1 vf-4b-00-2 vf-5a-00-2 vf-0b-00-1 vf-1a-00-1 vf-0b-00-2 vf-1a-00-2
			vf-cc-00-1 vf-db-00-1 vf-cc-00-2 vf-db-00-2 vf-8c-00-1 vf-9b-00-1 vf-8c-00-2 vf-9b-00-2`},
		// the VFs of 30 are on a switch without GPUs
		{"amd-mi300x-smc-thor2", 1, `
			pair-05-00-0-06-00-1 pair-27-00-0-23-00-1 pair-47-00-0-43-00-1 pair-65-00-0-66-00-1
			pair-85-00-0-86-00-1 pair-a7-00-0-a3-00-1 pair-c7-00-0-c3-00-1 pair-e5-00-0-e6-00-1
			gpu-05-00-0 gpu-27-00-0 gpu-47-00-0 gpu-65-00-0 gpu-85-00-0 gpu-a7-00-0 gpu-c7-00-0 gpu-e5-00-0
			vf-30-00-2 vf-30-02-2 vf-06-00-1 vf-23-00-1 vf-43-00-1 vf-66-00-1 vf-86-00-1 vf-a3-00-1 vf-c3-00-1
			vf-e6-00-1`},
	} {
		got := published(pool.Build(load(t, c.machine, c.vfs), sharing))
		if diff := cmp.Diff(strings.Fields(c.want), got); diff != "" {
			t.Errorf("%s with %d VFs for each PF (-want +got):\n%s", c.machine, c.vfs, diff)
		}
	}
	partitions := published(pool.Build(load(t, "amd-mi300x-smc-thor2-cpx-derived", 1), sharing))
	first, last := slices.Index(partitions, "gpu-05-00-0-p0"), slices.Index(partitions, "gpu-05-00-0-p7")
	if last < 0 || first < last {
		t.Errorf("the partition with the card's VF precedes others: %v", partitions)
	}
}

func TestAttributes(t *testing.T) {
	t.Parallel()
	p := pool.Build(load(t, "oci-mi300x-derived", 3), sharing)
	d := device(t, p, "pair-11-00-0")
	place := map[string]string{
		"pcieSwitch": "0000:08:00.0", "resource.kubernetes.io/numaNode": "0",
		"resource.kubernetes.io/pcieRoot": "pci0000:07",
	}
	gpu := map[string]string{
		"gpu": "0000:11:00.0", "vendor": "amd", "model": "MI300X", "resource": "amd.com/gpu",
		"hive": "0000:11:00.0", "link": "XGMI", "resource.kubernetes.io/pciBusID": "0000:11:00.0",
	}
	vf := map[string]string{"pf": "0000:0c:00.0"}
	for _, c := range []struct {
		device string
		want   []map[string]string
	}{
		{"pair-11-00-0", []map[string]string{place, gpu, vf, {
			"type": "pair", "vf": "0000:0c:00.1", "vfIndex": "0", "distance": "PIX",
			"vfResource": "tandem.dev/rdma_vf",
			"rdmaDevice": "mlx5_8", "k8s.cni.cncf.io/deviceID": "0000:0c:00.1",
			"k8s.cni.cncf.io/resourceName": "tandem.dev/pair",
		}}},
		{"gpu-11-00-0", []map[string]string{place, gpu, {
			"type": "gpu", "k8s.cni.cncf.io/deviceID": "0000:11:00.0", "k8s.cni.cncf.io/resourceName": "amd.com/gpu",
		}}},
		{"vf-0c-00-2", []map[string]string{place, vf, {
			"type": "vf", "vf": "0000:0c:00.2", "vfIndex": "1", "resource": "tandem.dev/rdma_vf",
			"rdmaDevice":                      "mlx5_9",
			"resource.kubernetes.io/pciBusID": "0000:0c:00.2", "k8s.cni.cncf.io/deviceID": "0000:0c:00.2",
			"k8s.cni.cncf.io/resourceName": "tandem.dev/rdma_vf",
		}}},
	} {
		want := map[string]string{}
		for _, part := range c.want {
			maps.Copy(want, part)
		}
		if diff := cmp.Diff(want, values(device(t, p, c.device))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.device, diff)
		}
	}
	if memory := d.Capacity[pool.CapacityMemory]; memory.Value.Value() != 196592<<20 {
		t.Errorf("a pair has %v of memory", memory.Value)
	}
}

// Nothing that a host bridge alone connects has a switch in common, and what is unknown is absent.
func TestUnknownIsAbsent(t *testing.T) {
	t.Parallel()
	p := pool.Build(load(t, "nv-h200-vm-flat", 1), sharing)
	for _, name := range published(p) {
		for _, attribute := range []resourceapi.QualifiedName{pool.AttributeSwitch, pool.AttributeNUMANode} {
			if a, ok := device(t, p, name).Attributes[attribute]; ok {
				t.Errorf("%s has %s %v", name, attribute, a)
			}
		}
	}
}

func TestNetworksOfPairs(t *testing.T) {
	t.Parallel()
	p := pool.Build(load(t, "oci-mi300x-derived", 3), pool.Options{Counters: true, PairsAsVFs: true})
	for name, want := range map[string]string{
		"pair-11-00-0": "tandem.dev/rdma_vf", "gpu-11-00-0": "amd.com/gpu",
	} {
		if got := values(device(t, p, name))[string(pool.AttributeMultusResource)]; got != want {
			t.Errorf("Multus finds %s under %s, want %s", name, got, want)
		}
	}
}

func TestNamesThatCannotBePublished(t *testing.T) {
	t.Parallel()
	machine := load(t, "oci-mi300x-derived", 2)
	machine.VFs = slices.Clone(machine.VFs)
	for i := range machine.VFs {
		machine.VFs[i].Pool = "intel.com/" + strings.Repeat("x", 60)
	}
	p := pool.Build(machine, sharing)
	if name, ok := device(t, p, "vf-0c-00-2").Attributes[pool.AttributeMultusResource]; ok {
		t.Errorf("a name of 70 characters is published: %v", name)
	}
	if len(p.Notes) != 1 || !strings.Contains(p.Notes[0], "more than 64 characters") {
		t.Errorf("notes are %q", p.Notes)
	}
}

func TestNamesHaveTheDomainWhereItMatters(t *testing.T) {
	t.Parallel()
	machine := load(t, "oci-mi300x-derived", 1)
	machine.GPUs, machine.VFs = slices.Clone(machine.GPUs[:1]), slices.Clone(machine.VFs[:1])
	machine.GPUs[0].Card.Domain = 0x10000 // as behind Hyper-V: no pair, for the tree has no such function
	machine.VFs[0].Aux = "mlx5_core.sf.4"
	got := published(pool.Build(machine, sharing))
	if want := []string{"gpu-10000-11-00-0", "vf-0c-00-1-sf4"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestLimitOfVFs(t *testing.T) {
	t.Parallel()
	options := sharing
	options.VFsPerPF = 3
	p := pool.Build(load(t, "oci-mi300x-derived", 8), options)
	want := map[pool.Type]int{pool.TypePair: 8, pool.TypeGPU: 8, pool.TypeVF: 16}
	if !cmp.Equal(want, byType(p)) {
		t.Errorf("got %v, want %v: the VFs of pairs count", byType(p), want)
	}
	if len(p.Notes) != 1 || !strings.HasPrefix(p.Notes[0], "24 of 64 VFs are published") {
		t.Errorf("notes are %q", p.Notes)
	}
	options.Bound = map[string]string{"vf-0c-01-0": "0000:0c:01.0"} // beyond the limit, and a claim has it
	device(t, pool.Build(load(t, "oci-mi300x-derived", 8), options), "vf-0c-01-0")
	options.Counters = false
	device(t, pool.Build(load(t, "oci-mi300x-derived", 8), options), "vf-0c-01-0")
}

// Bundles are for partitioned cards, with all partitions and as many VFs as there are.
func TestBundles(t *testing.T) {
	t.Parallel()
	p := pool.Build(load(t, "amd-mi300x-smc-thor2-cpx-derived", 64), sharing)
	for name, parts := range map[string]int{"bundle-05-00-0": 8, "bundle-e5-00-0": 7} {
		d := p.Devices[name]
		if len(d.GPUs) != parts || len(d.VFs) != parts {
			t.Errorf("%s has %d partitions and %d VFs, want %d of each", name, len(d.GPUs), len(d.VFs), parts)
		}
		for i, id := range d.VFs {
			pair := p.Devices[fmt.Sprintf("pair-%s-p%d", strings.TrimPrefix(name, "bundle-"), i)]
			if !slices.Equal(pair.VFs, []string{id}) || pair.GPUs[0] != d.GPUs[i] {
				t.Errorf("partition %d of %s has %s, as a pair %v", i, name, id, pair)
			}
		}
	}
	got := values(device(t, p, "bundle-05-00-0"))
	network := got[string(pool.AttributeMultusResource)]
	if got["partitions"] != "8" || network != pool.BundleResource || got["vf"] != "" {
		t.Errorf("a bundle has the attributes %v", got)
	}
	plain := byType(pool.Build(load(t, "amd-mi300x-smc-thor2-cpx-derived", 64), pool.Options{}))
	if plain[pool.TypeBundle] > 0 {
		t.Errorf("there are bundles where nothing keeps them apart from partitions: %v", plain)
	}
}

// Where all combinations are too many for the scheduler every GPU has a pair as far as there are VFs.
func TestFewVFs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		machine string
		vfs     int
		pairs   int
	}{
		{"oci-mi300x-derived", 1, 8},                // 1 GPU and 1 VF a switch: all
		{"nv-a100pcie-cx6dx-vf-partial", 0, 12},     // 4 and 3: all
		{"amd-mi250-16gcd-8nic", 1, 16},             // 4 and 2, four times: every GPU
		{"amd-mi250-16gcd-8nic", 2, 16},             // 4 and 4
		{"amd-mi300x-smc-thor2-cpx-derived", 1, 16}, // 8 and 1: two partitions of each card
	} {
		machine := load(t, c.machine, c.vfs)
		p := pool.Build(machine, sharing)
		all := 0
		for _, gpu := range machine.GPUs {
			for _, vf := range machine.VFs {
				if machine.Tree.Distance(gpu.Card, vf.Address).Level.Direct() {
					all++
				}
			}
		}
		if got := byType(p)[pool.TypePair]; got != c.pairs {
			t.Errorf("%s with %d VFs for each PF has %d pairs of %d, want %d", c.machine, c.vfs, got, all, c.pairs)
		}
		told := slices.ContainsFunc(p.Notes, func(note string) bool { return strings.HasPrefix(note, "switch ") })
		if told != (c.pairs < all) {
			t.Errorf("%s: %d of %d pairs, and the notes are %q", c.machine, c.pairs, all, p.Notes)
		}
	}
}
