package world

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
	"github.com/tandem-k8s/tandem/topology/recording"
)

// preset is a regular machine with two NUMA nodes: switches, each below a root complex of its own, with GPUs
// and NICs.
type preset struct {
	switches, gpus, nics int // of the machine; of every switch
	linked               bool
	about                string
}

var presets = map[string]preset{
	"A": {8, 1, 1, true, "8 switches with 1 GPU and 1 NIC each, GPUs linked all to all"},
	"B": {4, 2, 1, false, "4 switches with 2 GPUs and 1 NIC each, GPUs linked by PCIe alone"},
	"C": {4, 2, 2, true, "4 switches with 2 GPUs and 2 NICs each, GPUs linked all to all"},
}

// Presets are the names of the nodes that NewPreset makes.
func Presets() []string { return []string{"A", "B", "C"} }

// AboutPreset says in a few words what a preset is.
func AboutPreset(name string) string { return presets[strings.ToUpper(name)].about }

// NewPreset makes one of three common servers with two NUMA nodes: A, a switch for every GPU and NIC as with
// MI300X; B, two GPUs sharing a switch with one NIC; C, two GPUs and two NICs on every switch, as with H100.
func NewPreset(name string, vfsPerPF int) (*Node, error) {
	p, ok := presets[strings.ToUpper(name)]
	if !ok {
		return nil, fmt.Errorf("make node %q: there are %s", name, strings.Join(Presets(), ", "))
	}
	machine, gpus, vfs, err := p.build(vfsPerPF)
	if err != nil {
		return nil, fmt.Errorf("make node %s: %w", name, err)
	}
	tree, err := topology.Read(machine.FS())
	if err != nil {
		return nil, fmt.Errorf("make node %s: %w", name, err)
	}
	var links []topology.Link
	if p.linked {
		links = allToAll(gpus)
	}
	return New(strings.ToUpper(name), tree, gpus, vfs, links)
}

// build puts the machine's sysfs together: for the i-th switch root complex pciNN:00 with a root port, and
// below it one bus with the GPUs, the NICs and their VFs.
func (p preset) build(vfsPerPF int) (*recording.Machine, []placement.Device, []placement.Device, error) {
	b := &sysfs{recording.NewBuilder()}
	var gpus, vfs []placement.Device
	for i := range p.switches {
		numa := 2 * i / p.switches
		root := fmt.Sprintf("devices/pci0000:%02x", 0x10*i)
		port := topology.Address{Bus: uint8(0x10 * i), Device: 1}
		dir := b.function(root, port, bridgeClass, numa)
		at := func(slot, function int) topology.Address {
			return topology.Address{Bus: port.Bus + 1, Device: uint8(slot), Function: uint8(function)}
		}
		for g := range p.gpus {
			b.function(dir, at(g, 0), gpuClass, numa)
			gpus = append(gpus, placement.Device{ID: at(g, 0).String(), Address: at(g, 0)})
		}
		for k := range p.nics {
			pf := at(p.gpus+k, 0)
			pfDir := b.function(dir, pf, networkClass, numa)
			added, err := b.vfs(pfDir, pf, vfsPerPF, numa)
			if err != nil {
				return nil, nil, nil, err
			}
			vfs = append(vfs, added...)
		}
	}
	b.File("devices/system/node/online", "0-1\n")
	machine, err := b.Machine()
	return machine, gpus, vfs, err
}

// allToAll links every two GPUs, as NVSwitch and the xGMI of eight MI300X do.
func allToAll(gpus []placement.Device) []topology.Link {
	var links []topology.Link
	for i, a := range gpus {
		for _, b := range slices.Backward(gpus[:i]) {
			links = append(links, topology.Link{A: b.Address, B: a.Address, Type: topology.NVLink, Hops: 1, Count: 1})
		}
	}
	return links
}
