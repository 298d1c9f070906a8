// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

// recorded is a recorded machine with everything free.
type recorded struct {
	tree      *topology.Tree
	gpus, vfs []Device
	links     []topology.Link
}

// load reads a recorded machine. IDs are addresses without the domain 0000.
func load(t *testing.T, name string, vfsPerPF int) *recorded {
	t.Helper()
	m := &recorded{}
	_, m.tree = machines.Read(t, name, vfsPerPF)
	for d := range m.tree.Devices() {
		device := Device{ID: strings.TrimPrefix(d.Address.String(), "0000:"), Address: d.Address}
		switch {
		case d.IsVF():
			m.vfs = append(m.vfs, device)
		case machines.IsGPU(d):
			m.gpus = append(m.gpus, device)
		}
	}
	return m
}

// partition replaces each GPU by eight partitions, the last of them missing, as on a recorded node.
func (m *recorded) partition() {
	var partitions []Device
	for i := range 8*len(m.gpus) - 1 {
		partitions = append(partitions, Device{ID: "xcp_" + strconv.Itoa(i), Address: m.gpus[i/8].Address})
	}
	m.gpus = partitions
}

// mesh links GPUs as "0e-11:4 0e-4e:2" says: bus, bus and parallel links.
func (m *recorded) mesh(t *testing.T, links string) {
	t.Helper()
	for l := range strings.FieldsSeq(links) {
		var a, b uint8
		var count int
		if _, err := fmt.Sscanf(l, "%x-%x:%d", &a, &b, &count); err != nil {
			t.Fatal(err)
		}
		m.links = append(m.links, topology.Link{
			A: topology.Address{Bus: a}, B: topology.Address{Bus: b}, Type: topology.XGMI, Hops: 1, Count: count,
		})
	}
}

// mi250 is how the 16 GPUs of amd-mi250-16gcd-8nic are linked.
const mi250 = `0e-11:4 0e-4e:2 0e-8f:1 11-51:1 11-92:1 11-97:1 16-19:4 16-56:1 16-92:1 16-97:1 19-59:2 19-9a:1 4e-51:4 4e-56:1
	51-56:1 51-59:1 56-59:4 8f-92:4 8f-cf:2 92-d2:1 97-9a:4 97-d7:1 9a-da:2 cf-d2:4 cf-d7:1 d2-d7:1 d2-da:1 d7-da:4`

// request asks for n GPUs and m VFs. What others have, named by ID or by a prefix of it, is not free and
// weighs on its PF; what is held is held.
func (m *recorded) request(n, v int, taken, held, only string) Request {
	r := Request{GPUs: []Half{{Count: n}}, VFs: []Half{{Count: v}}, Links: m.links}
	named := func(names string, d Device) bool {
		return slices.ContainsFunc(strings.Fields(names), func(name string) bool {
			return d.ID == name || strings.HasPrefix(d.ID, name+":")
		})
	}
	for _, half := range []struct {
		all   []Device
		half  *Half
		spare *[]Device
		taken *[]Device
	}{{m.gpus, &r.GPUs[0], &r.Spare.GPUs, &r.Taken.GPUs}, {m.vfs, &r.VFs[0], &r.Spare.VFs, &r.Taken.VFs}} {
		for _, d := range half.all {
			f, _ := m.tree.Device(d.Address)
			switch {
			case named(taken, d):
				*half.taken = append(*half.taken, d)
			case named(held, d):
				half.half.Held = append(half.half.Held, d)
			case only != "" && f.NUMA.String() != only:
				*half.spare = append(*half.spare, d)
			default:
				half.half.Free = append(half.half.Free, d)
			}
		}
	}
	return r
}

func TestRecordedMachines(t *testing.T) {
	for _, c := range []struct {
		machine     string
		vfs         int // per PF
		name        string
		n, m        int
		taken, held string
		numa        string // the NUMA node that the kubelet offers, "" for all
		want        string
	}{
		{machine: "oci-mi300x-derived", vfs: 1, name: "half a machine", n: 4, m: 4, numa: "1",
			want: "8b:00.0-86:00.1 PIX, aa:00.0-a5:00.1 PIX, c2:00.0-bd:00.1 PIX, da:00.0-d5:00.1 PIX"},
		{machine: "oci-mi300x-derived", vfs: 1, name: "GPU only, from the broken NUMA node", n: 1, taken: "5d 58",
			want: "11:00.0"},
		{machine: "oci-mi300x-derived", vfs: 1, name: "GPU only, beside the VF of another", n: 1, taken: "58",
			want: "5d:00.0"},
		{machine: "oci-mi300x-derived", vfs: 1, name: "VF only, beside a GPU of another", m: 1, taken: "46",
			want: "41:00.1"},
		{machine: "oci-mi300x-derived", vfs: 1, name: "VFs second, after the GPUs", n: 2, m: 2, held: "2f 5d",
			want: "2f:00.0-2a:00.1 PIX, 5d:00.0-58:00.1 PIX"},
		{machine: "oci-mi300x-derived", vfs: 4, name: "GPUs second, after the VFs", n: 2, m: 2,
			held: "58:00.1 41:00.1",
			want: "46:00.0-41:00.1 PIX, 5d:00.0-58:00.1 PIX"},
		{machine: "oci-mi300x-derived", vfs: 4, name: "two GPUs for the VF that is there", n: 2, m: 1,
			held: "58:00.1",
			want: "11:00.0-58:00.1 NODE, 5d:00.0-58:00.1 PIX"},
		{machine: "oci-mi300x-derived", vfs: 4, name: "whole NUMA nodes stay whole", n: 2, taken: "aa",
			want: "8b:00.0, c2:00.0"},
		{machine: "oci-mi300x-derived", vfs: 1, name: "more VFs than GPUs", n: 2, m: 4, numa: "0",
			want: "11:00.0-0c:00.1 PIX, 2f:00.0-2a:00.1 PIX, 11:00.0-41:00.1 NODE, 2f:00.0-58:00.1 NODE"},
		{machine: "amd-mi250-16gcd-8nic", vfs: 4, name: "GPUs of one module", n: 2, taken: "0e",
			want: "16:00.0, 19:00.0"},
		{machine: "amd-mi250-16gcd-8nic", vfs: 4, name: "linked GPUs", n: 4,
			want: "4e:00.0, 51:00.0, 56:00.0, 59:00.0"},
		{machine: "amd-mi250-16gcd-8nic", vfs: 4, name: "a VF for every module", n: 4, m: 2,
			want: "4e:00.0-4b:00.1 PIX, 51:00.0-4b:00.1 PIX, 56:00.0-5a:00.1 PIX, 59:00.0-5a:00.1 PIX"},
		{machine: "amd-mi250-16gcd-8nic", vfs: 4, name: "linked GPUs rather than a PF for each", n: 4, m: 4,
			want: "4e:00.0-4b:00.1 PIX, 51:00.0-4b:00.2 PIX, 56:00.0-5a:00.1 PIX, 59:00.0-5a:00.2 PIX"},
		{machine: "amd-mi250-16gcd-8nic", vfs: 4, name: "half of the mesh", n: 8, m: 8,
			want: "0e:00.0-0b:00.1 PIX, 11:00.0-0b:00.2 PIX, 16:00.0-1a:00.1 PIX, 19:00.0-1a:00.2 PIX, " +
				"4e:00.0-4b:00.1 PIX, 51:00.0-4b:00.2 PIX, 56:00.0-5a:00.1 PIX, 59:00.0-5a:00.2 PIX"},
		{machine: "amd-mi300x-smc-thor2-cpx-derived", vfs: 4, name: "partitions of one card", n: 3, m: 1,
			taken: "xcp_0 xcp_1 xcp_2 xcp_3 xcp_4 xcp_5",
			want:  "xcp_56-e6:00.1 PIX, xcp_57-e6:00.1 PIX, xcp_58-e6:00.1 PIX"},
		{machine: "amd-mi300x-smc-thor2-cpx-derived", vfs: 4, name: "a broken card first", n: 1, m: 1,
			taken: "xcp_20",
			want:  "xcp_16-43:00.1 PIX"},
		{machine: "amd-mi300x-smc-thor2-cpx-derived", vfs: 4, name: "cards for VFs", n: 10, m: 2,
			want: "xcp_32-86:00.1 PIX, xcp_33-86:00.1 PIX, xcp_34-86:00.1 PIX, xcp_35-86:00.1 PIX, xcp_36-86:00.1 " +
				"PIX, xcp_40-a3:00.1 PIX, xcp_41-a3:00.1 PIX, xcp_42-a3:00.1 PIX, xcp_43-a3:00.1 PIX, " +
				"xcp_44-a3:00.1 PIX"},
		{machine: "nv-h100-aws-p5", vfs: 1, name: "four NICs for a GPU", n: 2, m: 8, taken: "60",
			want: "53:00.0-4f:00.1 PIX, 75:00.0-71:00.1 PIX, 53:00.0-50:00.1 PIX, 75:00.0-72:00.1 PIX, " +
				"53:00.0-51:00.1 PIX, 75:00.0-73:00.1 PIX, 53:00.0-52:00.1 PIX, 75:00.0-74:00.1 PIX"},
		{machine: "nv-h200-vm-flat", vfs: 1, name: "no switch: side by side", n: 3, m: 3,
			want: "05:00.0-0d:00.1 PHB, 06:00.0-0e:00.1 PHB, 07:00.0-0f:00.1 PHB"},
		{machine: "nv-4xrtx6000ada-2cx7", vfs: 2, name: "no switch: the NUMA node", n: 2, m: 2, taken: "01 21:00.2",
			want: "c1:00.0-81:00.2 NODE, e1:00.0-81:02.2 NODE"},
		{machine: "nv-a100pcie-cx6dx-vf-partial", vfs: 0, name: "one switch for all", n: 4, m: 2,
			want: "9b:00.0-9a:00.2 PIX, 9c:00.0-9a:00.3 PIX, 9d:00.0-9a:00.2 PIX, 9e:00.0-9a:00.3 PIX"},
	} {
		t.Run(c.machine+"/"+c.name, func(t *testing.T) {
			m := load(t, c.machine, c.vfs)
			switch {
			case strings.Contains(c.machine, "mi250"):
				m.mesh(t, mi250)
			case strings.Contains(c.machine, "cpx"):
				m.partition()
			}
			r := m.request(c.n, c.m, c.taken, c.held, c.numa)
			choice, err := Choose(m.tree, r)
			if err != nil {
				t.Fatal(err)
			}
			wellFormed(t, r, choice)
			if got := inShort(choice); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestRecordedMachinesEqualOracle compares with exhaustive search for small requests while others hold
// devices.
func TestRecordedMachinesEqualOracle(t *testing.T) {
	for _, name := range machines.Names() {
		m := load(t, name, 2)
		switch {
		case strings.Contains(name, "mi250"):
			m.mesh(t, mi250)
		case strings.Contains(name, "cpx"):
			m.partition()
		}
		r := rand.New(rand.NewPCG(1, 2))
		for _, n := range [][2]int{{1, 1}, {2, 2}, {1, 2}, {2, 1}, {3, 1}, {1, 3}, {3, 0}, {0, 2}} {
			var taken []string
			for _, d := range slices.Concat(m.gpus, m.vfs) {
				if r.IntN(3) == 0 {
					taken = append(taken, d.ID)
				}
			}
			q := m.request(n[0], n[1], strings.Join(taken, " "), "", "")
			if len(q.GPUs[0].Free) >= n[0] && len(q.VFs[0].Free) >= n[1] && !compareWithOracle(t, m.tree, q) {
				t.Fatal(name)
			}
		}
	}
}

// inShort prints pairs, or devices where there are none.
func inShort(c Choice) string {
	var words []string
	for _, p := range c.Pairs {
		words = append(words, fmt.Sprintf("%s-%s %s", p.GPU.ID, p.VF.ID, p.Distance.Level))
	}
	if len(c.Pairs) == 0 {
		for _, d := range slices.Concat(c.GPUs, c.VFs) {
			words = append(words, d.ID)
		}
	}
	return strings.Join(words, ", ")
}
