// SPDX-License-Identifier: Apache-2.0

package simulate

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

// Presets returns the names that NewPreset accepts.
func Presets() []string { return []string{"A", "B", "C"} }

// AboutPreset describes a preset in a few words; "" for an unknown name.
func AboutPreset(name string) string { return presets[strings.ToUpper(name)].about }

// NewPreset returns one of three common servers with two NUMA nodes: A, a switch for every GPU and NIC as
// with MI300X; B, two GPUs sharing a switch with one NIC; C, two GPUs and two NICs on every switch, as with
// H100.
func NewPreset(name string, vfsPerPF int) (*Node, error) {
	p, ok := presets[strings.ToUpper(name)]
	if !ok {
		return nil, fmt.Errorf("make node %q: there are %s", name, strings.Join(Presets(), ", "))
	}
	machine, gpus, pfs, err := p.build()
	if err != nil {
		return nil, fmt.Errorf("make node %s: %w", name, err)
	}
	tree, err := topology.Read(machine.FS())
	if err != nil {
		return nil, fmt.Errorf("make node %s: %w", name, err)
	}
	var vfs []placement.Device
	for _, pf := range pfs {
		added, err := NewVFs(pf, vfsPerPF)
		if err != nil {
			return nil, fmt.Errorf("make node %s: %w", name, err)
		}
		vfs = append(vfs, added...)
	}
	var links []topology.Link
	if p.linked {
		links = allToAll(gpus)
	}
	return New(strings.ToUpper(name), tree, gpus, vfs, links)
}

// NewVFs returns count invented VFs at the place of a PF. It returns an error if the addresses do not
// suffice, from slot 10 of the PF's bus on.
func NewVFs(pf topology.Address, count int) ([]placement.Device, error) {
	if count > 0xff80-int(pf.Bus)<<8 {
		return nil, fmt.Errorf("add %d VFs to %s: there is no bus left for so many", count, pf)
	}
	vfs := make([]placement.Device, count)
	for i := range vfs {
		vfs[i] = placement.Device{ID: fmt.Sprintf("%s_%d", pf, i), Address: pf}
	}
	return vfs, nil
}

// The classes of the functions, in the format of sysfs.
const (
	bridgeClass  = "0x060400"
	gpuClass     = "0x120000"
	networkClass = "0x020000"
)

// build returns the few sysfs files of the machine's tree: for the i-th switch root complex pciNN:00 with a
// root port, and below the port one bus with the GPUs and the NICs.
func (p preset) build() (
	machine *recording.Machine, gpus []placement.Device, pfs []topology.Address, err error,
) {
	b := recording.NewBuilder()
	for i := range p.switches {
		numa := 2 * i / p.switches
		function := func(parent string, a topology.Address, class string) (dir string) {
			dir = parent + "/" + a.String()
			b.Link("bus/pci/devices/"+a.String(), "../../../"+dir)
			b.File(dir+"/class", class+"\n")
			b.File(dir+"/numa_node", fmt.Sprintln(numa))
			return dir
		}
		port := topology.Address{Bus: uint8(0x10 * i), Device: 1}
		dir := function(fmt.Sprintf("devices/pci0000:%02x", 0x10*i), port, bridgeClass)
		for slot := range p.gpus + p.nics {
			a := topology.Address{Bus: port.Bus + 1, Device: uint8(slot)}
			if slot < p.gpus {
				function(dir, a, gpuClass)
				gpus = append(gpus, placement.Device{ID: a.String(), Address: a})
			} else {
				function(dir, a, networkClass)
				pfs = append(pfs, a)
			}
		}
	}
	b.File("devices/system/node/online", "0-1\n")
	machine, err = b.Machine()
	return machine, gpus, pfs, err
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
