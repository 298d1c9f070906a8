// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strconv"
	"testing"

	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/recording"
)

// world is a made-up machine: what sysfs would hold, and what can be asked for on it.
type world struct {
	functions []function
	nodes     int // online NUMA nodes
	gpus, vfs []Device
	links     []topology.Link
	taken     Devices // by containers that stay
}

// function is a PCI function of a world.
type function struct {
	address  topology.Address
	complex  topology.Address // its root complex as if it were a function, for its domain and bus
	bridges  []topology.Address
	class    string
	numa     int
	pf       topology.Address // of a VF
	degraded bool
	id       ids
	v3       string // keyword of a PF or DMA function
	config   string // in the words of package recording
}

// redirecting is the config of a port with the ACS bits that the kernel sets where there is an IOMMU.
const redirecting = "ACS=0x001d\n"

// builder makes up a world.
type builder struct {
	world
	r       *rand.Rand
	lastBus map[uint32]uint8
	domains uint32 // root complexes of complexes
	maxGPUs int
	maxVFs  int
}

// randomWorld makes up a machine with at most so many GPUs, or partitions, and VFs.
func randomWorld(r *rand.Rand, gpus, vfs int) *world {
	b := &builder{r: r, lastBus: map[uint32]uint8{}, maxGPUs: gpus, maxVFs: vfs}
	b.nodes = 1 + r.IntN(3)
	b.addComplexes()
	domains := []uint32{0, 0, 0, 1, 0x10000}
	for range 1 + r.IntN(4) {
		domain := domains[r.IntN(len(domains))]
		c := topology.Address{Domain: domain, Bus: b.bus(domain)}
		numa := r.IntN(b.nodes)
		if r.IntN(8) == 0 {
			numa = -1
		}
		b.fill(c, c.Bus, nil, numa, 3)
	}
	b.addLinks()
	if r.IntN(10) == 0 { // devices that the tree does not hold
		ghost := topology.Address{Bus: uint8(r.IntN(256)), Device: 30}
		b.gpus = append(b.gpus, Device{ID: "ghost", Address: ghost})
		ghost.Device++
		b.vfs = append(b.vfs, Device{ID: "ghost VF", Address: ghost})
	}
	return &b.world
}

func (b *builder) bus(domain uint32) uint8 {
	b.lastBus[domain]++
	return b.lastBus[domain]
}

// fill puts devices and bridges on a bus.
func (b *builder) fill(c topology.Address, bus uint8, bridges []topology.Address, numa, depth int) {
	for device := range 1 + b.r.IntN(4) {
		at := topology.Address{Domain: c.Domain, Bus: bus, Device: uint8(device)}
		switch k := b.r.IntN(10); {
		case k < 4 && depth > 0:
			port := function{address: at, complex: c, bridges: bridges, class: "0x060400", numa: numa}
			if b.r.IntN(5) == 0 {
				port.config = redirecting
			}
			b.functions = append(b.functions, port)
			b.fill(c, b.bus(c.Domain), append(slices.Clone(bridges), at), numa, depth-1)
		case k < 7:
			b.gpu(function{address: at, complex: c, bridges: bridges, class: "0x030200", numa: numa})
		default:
			b.nic(function{address: at, complex: c, bridges: bridges, class: "0x020000", numa: numa})
		}
	}
}

func (b *builder) gpu(f function) {
	partitions := 1
	if b.r.IntN(4) == 0 {
		partitions = 2 + b.r.IntN(2)
	}
	if len(b.gpus)+partitions > b.maxGPUs {
		return
	}
	f.degraded = b.r.IntN(8) == 0
	b.functions = append(b.functions, f)
	ill := b.r.IntN(6) == 0
	if partitions == 1 {
		b.gpus = append(b.gpus, Device{ID: f.address.String(), Address: f.address, Degraded: ill})
		return
	}
	for range partitions {
		b.gpus = append(b.gpus, Device{
			ID: "amdgpu_xcp_" + strconv.Itoa(len(b.gpus)+8), Address: f.address, Degraded: ill,
		})
	}
}

func (b *builder) nic(f function) {
	for range 1 + b.r.IntN(2) {
		f.degraded = b.r.IntN(6) == 0
		ill := b.r.IntN(5) == 0
		vfs := b.r.IntN(5)
		if len(b.vfs)+vfs > b.maxVFs {
			return
		}
		b.functions = append(b.functions, f)
		for i := range vfs {
			vf := f
			vf.pf = f.address
			vf.address.Device, vf.address.Function = 16+f.address.Device, 4*f.address.Function+uint8(i)
			b.functions = append(b.functions, vf)
			b.vfs = append(b.vfs, Device{ID: vf.address.String(), Address: vf.address, Degraded: ill})
		}
		f.address.Function++
	}
}

// addLinks connects cards: not at all, all to all, in hives, or at random.
func (b *builder) addLinks() {
	style, hive := b.r.IntN(4), b.r.IntN(3)+2
	count := 1 + b.r.IntN(4)
	cards := slices.CompactFunc(slices.Clone(b.gpus), func(x, y Device) bool { return x.Address == y.Address })
	for i, x := range cards {
		for j, y := range cards[:i] {
			l := topology.Link{A: x.Address, B: y.Address, Type: topology.XGMI, Hops: 1, Count: count}
			switch {
			case style == 0, style == 2 && i/hive != j/hive, style == 3 && b.r.IntN(2) == 0:
				continue
			case style == 3:
				l.Hops, l.Count = 1+b.r.IntN(3), 1+b.r.IntN(4)
			}
			b.links = append(b.links, l)
			if b.r.IntN(2) == 0 { // as drivers list them, from either end
				l.A, l.B = l.B, l.A
				b.links = append(b.links, l)
			}
		}
	}
}

// tree reads the world through the same reader as a real machine, with every address renamed.
func (w *world) tree(t testing.TB, rename func(topology.Address) topology.Address) *topology.Tree {
	t.Helper()
	b := recording.NewBuilder()
	b.File("devices/system/node/online", "0-"+strconv.Itoa(w.nodes-1)+"\n")
	indices := map[topology.Address]int{} // by PF: that of its next VF
	for _, f := range w.functions {
		c := rename(f.complex)
		dir := fmt.Sprintf("devices/pci%04x:%02x", c.Domain, c.Bus)
		for _, b := range f.bridges {
			dir = path.Join(dir, rename(b).String())
		}
		name := rename(f.address).String()
		dir = path.Join(dir, name)
		b.Link("bus/pci/devices/"+name, "../../../"+dir)
		b.File(dir+"/class", f.class+"\n")
		b.File(dir+"/numa_node", strconv.Itoa(f.numa)+"\n")
		if f.pf != (topology.Address{}) {
			b.Link(dir+"/physfn", "../"+rename(f.pf).String())
			b.Link(path.Join(path.Dir(dir), rename(f.pf).String(), fmt.Sprintf("virtfn%d", indices[f.pf])), "../"+name)
			indices[f.pf]++
		} else if f.degraded {
			b.File(dir+"/current_link_width", "8\n")
			b.File(dir+"/max_link_width", "16\n")
		}
		if f.config != "" && f.pf == (topology.Address{}) {
			b.File(dir+"/config", f.config)
		}
		if f.id != (ids{}) {
			b.File(dir+"/vendor", fmt.Sprintf("%#04x\n", f.id.vendor))
			b.File(dir+"/device", fmt.Sprintf("%#04x\n", f.id.device))
		}
		if f.v3 != "" && f.pf == (topology.Address{}) {
			b.File(dir+"/vpd", "V3="+f.v3+"\n")
		}
	}
	m, err := b.Machine()
	if err != nil {
		t.Fatal(err)
	}
	tree, err := topology.Read(m.FS())
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func same(a topology.Address) topology.Address { return a }

// request makes up a request for n GPUs and m VFs: some of them held, some devices taken by others, some
// spare.
func (w *world) request(r *rand.Rand, n, m int) Request {
	q := Request{Links: w.links}
	q.GPUs, q.Spare.GPUs, q.Taken.GPUs = halves(r, w.gpus, n)
	q.VFs, q.Spare.VFs, q.Taken.VFs = halves(r, w.vfs, m)
	return q
}

// halves makes up what is asked of a kind, half of the time of several resources.
func halves(r *rand.Rand, all []Device, count int) (halves []Half, spare, taken []Device) {
	h, spare, taken := half(r, all, count)
	resources := 1
	if r.IntN(2) == 0 {
		resources += 1 + r.IntN(3)
	}
	style := r.IntN(3)
	of := func(d Device) int {
		switch i := slices.Index(all, d); style {
		case 0: // next to each other, as PFs or cards
			return i * resources / len(all)
		case 1: // in turns, as pools on one PF or partitions of one card
			return i % resources
		default:
			return i * i % 7 % resources
		}
	}
	halves = make([]Half, resources)
	for _, d := range h.Held {
		halves[of(d)].Held = append(halves[of(d)].Held, d)
		halves[of(d)].Count++
	}
	for i, d := range h.Free {
		halves[of(d)].Free = append(halves[of(d)].Free, d)
		if i < count-len(h.Held) {
			halves[of(d)].Count++
		}
	}
	return halves, spare, taken
}

func half(r *rand.Rand, all []Device, count int) (h Half, spare, taken []Device) {
	h.Count = count
	held := 0
	if r.IntN(3) == 0 {
		held = r.IntN(count + 1)
	}
	left := len(all)
	for _, i := range r.Perm(len(all)) {
		needed := count - len(h.Held) - len(h.Free)
		switch left--; {
		case len(h.Held) < held:
			h.Held = append(h.Held, all[i])
		case needed > left || r.IntN(4) > 0:
			h.Free = append(h.Free, all[i])
		case r.IntN(2) == 0:
			spare = append(spare, all[i])
		default:
			taken = append(taken, all[i])
		}
	}
	return h, spare, taken
}
