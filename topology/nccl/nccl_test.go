// SPDX-License-Identifier: Apache-2.0

package nccl

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

func read(t testing.TB, machine string, vfs int) *topology.Tree {
	t.Helper()
	_, tree := machines.Read(t, machine, vfs)
	return tree
}

// functions returns the GPUs and NICs of a machine.
func functions(tree *topology.Tree) (gpus, nics []topology.Address) {
	for d := range tree.Devices() {
		switch {
		case machines.IsGPU(d):
			gpus = append(gpus, d.Address)
		case d.Class.IsNetwork() && !d.IsVF():
			nics = append(nics, d.Address)
		}
	}
	return gpus, nics
}

func parse(t testing.TB, text string) *File {
	t.Helper()
	f, err := Read("topo.xml", strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return f
}

func apply(t testing.TB, text string, tree *topology.Tree) *topology.Tree {
	t.Helper()
	moved, err := parse(t, text).Apply(tree)
	if err != nil {
		t.Fatalf("%v with\n%s", err, text)
	}
	return moved
}

func written(t testing.TB, tree *topology.Tree, functions ...topology.Address) string {
	t.Helper()
	var text bytes.Buffer
	if err := Write(&text, tree, functions); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// A file written from a machine restores the switches of a flattened machine and does not change the machine
// itself.
func TestRoundTrip(t *testing.T) {
	for _, name := range machines.Names() {
		tree := read(t, name, 1)
		gpus, nics := functions(tree)
		if len(gpus)+len(nics) == 0 {
			t.Fatalf("%s has nothing", name)
		}
		text := written(t, tree, slices.Concat(gpus, nics)...)
		flat := map[topology.Address]topology.Place{}
		for i, a := range slices.Concat(gpus, nics) {
			flat[a] = topology.Place{RootComplex: fmt.Sprintf("pci%04x:00", 0x1000+i)}
		}
		restored, same := apply(t, text, tree.Move(flat)), apply(t, text, tree)
		for _, g := range gpus {
			for _, n := range nics {
				want := tree.Distance(g, n)
				if got := same.Distance(g, n); got != want {
					t.Errorf("%s: %s to %s is %v with its own file, was %v", name, g, n, got, want)
				}
				if want.Level == topology.C2C {
					want.Level = topology.NODE // a file has no C2C: NCCL finds NVLink-C2C itself
				}
				if got := restored.Distance(g, n).Level; want.Level.Direct() && got != want.Level ||
					got.Direct() != want.Level.Direct() {
					t.Errorf("%s: %s to %s is %s of the file, was %s", name, g, n, got, want.Level)
				}
			}
		}
	}
}

// azure returns a file like that of Azure ND H100 v5 guests, with this many GPUs per bridge, for the recorded
// flat guest.
func azure(perBridge int) string {
	var text strings.Builder
	text.WriteString("<!-- made up -->\n<system version=\"1\">\n")
	for node := range 2 {
		fmt.Fprintf(&text,
			`  <cpu numaid="%d" affinity="ffffffff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">`+
				"\n", node)
		for bridge := range 4 / perBridge {
			fmt.Fprintf(&text,
				`    <pci busid="ffff:ff:%02x.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">`+"\n",
				node*4+bridge+1)
			for i := range perBridge {
				at := node*4 + bridge*perBridge + i
				fmt.Fprintf(&text,
					`      <pci busid="0000:%02x:00.0" class="0x030200"/><pci busid="0000:%02x:00.0" class="0x020700"/>`+
						"\n", 0x05+at, 0x0d+at)
			}
			text.WriteString("    </pci>\n")
		}
		text.WriteString("  </cpu>\n")
	}
	text.WriteString("</system>\n")
	return text.String()
}

// On a guest with a flat tree, the file enables same-switch pairs, and placement finds them.
func TestFlatGuest(t *testing.T) {
	for perBridge, near := range map[int]int{1: 8, 2: 16} {
		flat := read(t, "nv-h200-vm-flat", 2)
		tree := apply(t, azure(perBridge), flat)
		gpus, nics := functions(tree)
		before, after := 0, 0
		for _, g := range gpus {
			for _, n := range nics {
				if flat.Distance(g, n).Level.Direct() {
					before++
				}
				if tree.Distance(g, n).Level == topology.PIX {
					after++
				}
			}
		}
		if before != 0 || after != near {
			t.Errorf("%d a bridge: %d pairs on one switch without the file, %d with it; want 0 and %d",
				perBridge, before, after, near)
		}
		if d, _ := tree.Device(gpus[7]); d.NUMA != topology.Node(1) {
			t.Errorf("the last GPU is on NUMA node %s", d.NUMA)
		}
		choice, err := placement.Choose(tree, placement.Request{GPUs: half(3, gpus), VFs: half(3, vfs(tree))})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range choice.Pairs {
			if p.Distance.Level != topology.PIX {
				t.Errorf("%s and %s are %s", p.GPU.ID, p.VF.ID, p.Distance.Level)
			}
		}
	}
}

func vfs(tree *topology.Tree) (list []topology.Address) {
	for d := range tree.Devices() {
		if d.IsVF() {
			list = append(list, d.Address)
		}
	}
	return list
}

func half(count int, list []topology.Address) []placement.Half {
	h := placement.Half{Count: count}
	for _, a := range list {
		h.Free = append(h.Free, placement.Device{ID: a.String(), Address: a})
	}
	return []placement.Half{h}
}

// A file may list a part of the machine. Listed functions below a bridge that the machine has too stay next
// to unlisted functions.
func TestPart(t *testing.T) {
	tree := read(t, "nv-h100-aws-p5", 0)
	gpus, nics := functions(tree)
	want := tree.Distance(gpus[0], nics[0])
	d, _ := tree.Device(nics[0])
	bridge := d.Bridges()[1] // the upstream port
	text := fmt.Sprintf(
		`<system version="1"><cpu numaid="0"><pci busid="%s"><pci busid="%s"><nic><net name="rdmap79s0"/></nic></pci></pci></cpu></system>`,
		bridge, nics[0])
	if got := apply(t, text, tree).Distance(gpus[0], nics[0]); got != want || !got.Level.Direct() {
		t.Errorf("%s to %s is %v, was %v", gpus[0], nics[0], got, want)
	}
	elsewhere := fmt.Sprintf(
		`<system version="1"><cpu numaid="1"><pci busid="ffff:ff:01.0"><pci busid="%s"/><pci busid="%s"/></pci></cpu></system>`,
		nics[0], gpus[7])
	moved := apply(t, elsewhere, tree)
	if got := moved.Distance(gpus[7], nics[0]).Level; got != topology.PIX {
		t.Errorf("%s to %s is %s", gpus[7], nics[0], got)
	}
	if got := moved.Distance(gpus[0], nics[0]).Level; got.Direct() {
		t.Errorf("%s to %s, which left, is %s", gpus[0], nics[0], got)
	}
	if got := moved.Distance(gpus[0], nics[1]); got != tree.Distance(gpus[0], nics[1]) {
		t.Errorf("%s to %s, which nobody named, is %v", gpus[0], nics[1], got)
	}
}

// A file for a pod has the GPU and the VF below their switch, and the address under which NCCL looks for the
// VF.
func TestWrite(t *testing.T) {
	tree := read(t, "oci-mi300x-derived", 2)
	gpu, vf := topology.Address{Bus: 0x11}, topology.Address{Bus: 0x0c, Function: 2}
	want, err := os.ReadFile("testdata/pod.xml")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), written(t, tree, gpu, vf)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	const missing = "write topology file: this machine has no PCI function 0000:fe:00.0"
	err = Write(&bytes.Buffer{}, tree, []topology.Address{{Bus: 0xfe}})
	if err == nil || err.Error() != missing {
		t.Errorf("%v, want %s", err, missing)
	}
}

// TestOneFunctionOfTwo: a file has one place for a NIC, also if one of its PFs alone has a DMA function.
func TestOneFunctionOfTwo(t *testing.T) {
	t.Parallel()
	gpu, nic := topology.Address{Domain: 8, Bus: 6}, topology.Address{Bus: 3}
	other := topology.Address{Bus: 3, Function: 1}
	recorded := read(t, "nv-gb200-oke-derived", 0)
	var functions []*topology.Device
	var places []topology.Place
	for d := range recorded.Devices() {
		changed := *d
		if d.Address == other {
			changed.V3 = "of no DMA function"
		}
		functions = append(functions, &changed)
		places = append(places, topology.Place{RootComplex: d.RootComplex(), Bridges: d.Bridges(), NUMA: d.NUMA})
	}
	tree := topology.Assemble(functions, places, recorded.NUMANodes())
	if got := tree.Distance(gpu, other).Level; got != topology.NODE {
		t.Fatalf("PF without a DMA function: %s", got)
	}
	text := written(t, tree, gpu, nic, other)
	if got := apply(t, text, tree).Distance(gpu, nic).Level; got != topology.PIX {
		t.Errorf("%s:\n%s", got, text)
	}
}

// TestRCCL: a dump of RCCL has version 2, and attributes of its own. The element is as in a dump of a server
// (https://github.com/ROCm/rccl/issues/1185).
func TestRCCL(t *testing.T) {
	f := parse(t, `<system version="2">
  <cpu numaid="3" affinity="00000000,ff000000" arch="x86_64" vendor="AMD" familyid="159" modelid="2">
    <pci busid="0000:35:00.0" class="0x060400" vendor="0x1d94" device="0x23b7" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:37:00.0" class="0x038000" vendor="0x1d94" device="0x55b7" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90" gcn="21943" arch="38911" rank="0" gdr="1"/>
      </pci>
    </pci>
  </cpu>
</system>`)
	if got, want := fmt.Sprint(f.Functions()), "[{0000:37:00.0 3 [0000:35:00.0]}]"; got != want {
		t.Errorf("functions %s, want %s", got, want)
	}
}

func TestErrors(t *testing.T) {
	tree := read(t, "oci-mi300x-derived", 0)
	in := func(inner string) string {
		return "<system version=\"1\">\n<cpu numaid=\"0\">\n" + inner + "\n</cpu>\n</system>"
	}
	for _, c := range []struct{ text, want string }{
		{"", `read topology file topo.xml: want one element <system> around all others, got 0`},
		{"<cpu numaid=\"0\"/>", `want one element <system> around all others, got 0`},
		{"<system version=\"3\"/>", `line 1: <system version="3">: want 1 (NCCL) or 2 (RCCL)`},
		{"<system/>", `line 1: <system version="">: want 1`},
		{"<system version=\"1\">\n<cpu/></system>",
			`line 2: <cpu numaid="">: want the number of a NUMA node, or -1`},
		{"<system version=\"1\"><cpu numaid=\"zero\"/></system>", `line 1: <cpu numaid="zero">: want`},
		{in(`<pci/>`), `line 3: <pci busid="">: parse PCI address`},
		{in(`<pci busid="11:00.0"/>`), `line 3: <pci busid="11:00.0">: parse PCI address`},
		{in("<pci busid=\"0000:11:00.0\"/>\n<pci busid=\"0000:11:00.0\"/>"),
			`line 4: <pci busid="0000:11:00.0">: duplicate of line 3`},
		{in(`<pci busid="0000:11:00.0">`), `element <pci> closed by </cpu>`},
		{in(strings.Repeat(`<pci busid="0000:11:00.0">`, 2)), `duplicate of line 3`},
		{in(deep(80)), `nesting exceeds 64 elements`},
		{"<system version=\"1\">" + strings.Repeat(" ", maxBytes), `larger than 1048576 bytes`},
		{in(`<pci busid="0001:00:00.0"/>`),
			`apply topology file topo.xml: this machine has none of the file's 1 PCI functions; is the file for another machine?`},
		{
			in("<pci busid=\"0000:11:00.0\"/>\n<pci busid=\"ffff:ff:01.0\"><pci busid=\"0000:11:00.1\"/></pci>") + " ",
			"",
		},
	} {
		f, err := Read("topo.xml", strings.NewReader(c.text))
		if err == nil {
			_, err = f.Apply(tree)
		}
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%.80q: %v", c.text, err)
		case c.want != "" &&
			(err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "topo.xml")):
			t.Errorf("%.80q: %v; want %q", c.text, err, c.want)
		}
	}
	if _, err := Load("testdata/none.xml"); err == nil || !strings.Contains(err.Error(), "testdata/none.xml") {
		t.Error(err)
	}
}

func deep(n int) string {
	var open strings.Builder
	for i := range n {
		fmt.Fprintf(&open, `<pci busid="0000:%02x:00.0">`, i)
	}
	return open.String() + strings.Repeat("</pci>", n)
}

// Two VFs of one PF below different bridges contradict each other.
func TestContradiction(t *testing.T) {
	tree := read(t, "oci-mi300x-derived", 2)
	const text = `<system version="1"><cpu numaid="0"><pci busid="0000:0c:00.1"/>
<pci busid="ffff:ff:01.0"><pci busid="0000:0c:00.2"/></pci></cpu></system>`
	_, err := parse(t, text).Apply(tree)
	const want = `apply topology file topo.xml: line 2: <pci busid="0000:0c:00.2">: same card as 0000:0c:00.1 in line 1, but below another bridge or NUMA node`
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// For every file, Apply returns an error or the tree keeps its functions.
func FuzzRead(f *testing.F) {
	tree := read(f, "nv-h200-vm-flat", 1)
	gpus, nics := functions(tree)
	f.Add(azure(1))
	f.Add(azure(2))
	f.Add(written(f, tree, append(gpus, nics...)...))
	f.Add(`<system version="1"><cpu numaid="-1"><pci busid="0000:05:00.0"><gpu dev="0"><nvlink target="0000:06:00.0"/></gpu></pci></cpu></system>`)
	count := func(t *topology.Tree) (n int) {
		for range t.Devices() {
			n++
		}
		return n
	}
	f.Fuzz(func(t *testing.T, text string) {
		file, err := Read("topo.xml", strings.NewReader(text))
		if err != nil {
			return
		}
		moved, err := file.Apply(tree)
		if err != nil {
			return
		}
		if got, want := count(moved), count(tree); got != want {
			t.Errorf("%d functions, were %d", got, want)
		}
		for _, g := range gpus {
			if d := moved.Distance(g, nics[0]); d != moved.Distance(nics[0], g) {
				t.Errorf("%s to %s is another distance back", g, nics[0])
			}
			if place, ok := moved.Place(g); !ok || place.RootComplex == "" {
				t.Errorf("%s has no root complex", g)
			}
		}
	})
}

func TestFunctions(t *testing.T) {
	f := parse(t, `<system version="1"><cpu numaid="1"><pci busid="0000:10:00.0"><pci busid="0000:12:00.0">
		<pci busid="0000:15:00.0"/></pci><pci busid="0000:13:00.0"/></pci><pci busid="0000:20:00.0"/></cpu></system>`)
	var got []string
	for _, function := range f.Functions() {
		got = append(got, fmt.Sprint(function.Address, " on ", function.NUMA, " below ", function.Bridges))
	}
	want := []string{
		"0000:15:00.0 on 1 below [0000:10:00.0 0000:12:00.0]", "0000:13:00.0 on 1 below [0000:10:00.0]",
		"0000:20:00.0 on 1 below []",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("functions (-want +got):\n%s", diff)
	}
}
