// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"fmt"
	"path"
	"testing"

	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
	"github.com/tandem-k8s/tandem/topology/recording"
)

// machine is a made-up machine: where everything is, and what can be asked for.
type machine struct {
	tree      *topology.Tree
	gpus, vfs []placement.Device
	links     []topology.Link
}

// shape is a regular machine: switches, each in a root complex of its own, with GPUs and one PF.
type shape struct {
	switches int
	numa     int // nodes, with equal shares of the switches
	gpus     int // per switch
	vfs      int // per PF
}

func (s shape) build(tb testing.TB) *machine {
	tb.Helper()
	m, files := &machine{}, recording.NewBuilder()
	files.File("devices/system/node/online", fmt.Sprintf("0-%d\n", s.numa-1))
	for i := range s.switches {
		port := topology.Address{Bus: uint8(2 * i), Device: 1}
		above := fmt.Sprintf("devices/pci0000:%02x", port.Bus)
		below := path.Join(above, port.String())
		add := func(dir string, a topology.Address, class string) {
			place := path.Join(dir, a.String())
			files.Link("bus/pci/devices/"+a.String(), "../../../"+place)
			files.File(place+"/class", class+"\n")
			files.File(place+"/numa_node", fmt.Sprintln(s.numa*i/s.switches))
		}
		add(above, port, "0x060400")
		pf := topology.Address{Bus: port.Bus + 1}
		add(below, pf, "0x020000")
		for g := range s.gpus {
			gpu := topology.Address{Bus: pf.Bus, Device: uint8(g + 1)}
			add(below, gpu, "0x120000")
			m.gpus = append(m.gpus, placement.Device{ID: gpu.String(), Address: gpu})
		}
		for v := range s.vfs { // in the upper half of the bus
			vf := topology.Address{Bus: pf.Bus, Device: uint8(16 + v/8), Function: uint8(v % 8)}
			add(below, vf, "0x020000")
			files.Link(path.Join(below, vf.String(), "physfn"), "../"+pf.String())
			m.vfs = append(m.vfs, placement.Device{ID: vf.String(), Address: vf})
		}
	}
	recorded, err := files.Machine()
	if err == nil {
		m.tree, err = topology.Read(recorded.FS())
	}
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// The links between GPUs, by the name that benchmarks give them.
const (
	uniform = "uniform" // none; each GPU on a switch of its own, all on one NUMA node
	cube    = "cube"    // hybrid cube mesh: quads from all to all, each GPU with its like in the next quad
	all     = "all"     // from all to all
	two     = "two"     // none; two GPUs on each switch
)

var everyLinks = []string{uniform, cube, all, two}

// linked is a machine with so many GPUs, linked in one of these ways, and eight VFs on each switch.
func linked(tb testing.TB, gpus int, how string) *machine {
	s := shape{switches: gpus, numa: 2, gpus: 1, vfs: 8}
	switch how {
	case uniform:
		s.numa = 1
	case two:
		s.switches, s.gpus = gpus/2, 2
	}
	m := s.build(tb)
	switch how {
	case cube:
		m.link(cubeMesh)
	case all:
		m.link(allToAll)
	}
	return m
}

func cubeMesh(i, j int) int {
	if i/4 == j/4 || i-j == 4 {
		return 1 + (i+j)%2
	}
	return 0
}

func allToAll(int, int) int { return 1 }

// link gives every two GPUs on different cards their number of parallel links.
func (m *machine) link(count func(i, j int) int) {
	for i, a := range m.gpus {
		for j, b := range m.gpus[:i] {
			if n := count(i, j); n > 0 && a.Address != b.Address {
				m.links = append(m.links, topology.Link{
					A: a.Address, B: b.Address, Type: topology.NVLink, Hops: 1, Count: n,
				})
			}
		}
	}
}
