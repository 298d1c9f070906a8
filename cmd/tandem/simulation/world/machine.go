package world

import (
	"fmt"
	"io/fs"
	"path"

	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
	"github.com/tandem-k8s/tandem/topology/recording"
)

// Machine is a recorded machine to make a node of.
type Machine struct {
	Name  string
	Sys   fs.FS // its sysfs
	GPUs  []placement.Device
	PFs   []topology.Address // whose VFs containers can ask for
	Links []topology.Link
}

// Node makes a node with this many VFs on each PF. A PF that was recorded with VFs keeps those and gets no
// others.
func (m Machine) Node(vfsPerPF int) (*Node, error) {
	machine, err := recording.Capture(m.Sys)
	if err != nil {
		return nil, fmt.Errorf("simulate %s: %w", m.Name, err)
	}
	before, err := topology.Read(m.Sys)
	if err != nil {
		return nil, fmt.Errorf("simulate %s: %w", m.Name, err)
	}
	b := &sysfs{machine.Build()}
	var vfs []placement.Device
	for _, address := range m.PFs {
		added, err := m.vfs(b, before, address, vfsPerPF)
		if err != nil {
			return nil, fmt.Errorf("simulate %s: %w", m.Name, err)
		}
		vfs = append(vfs, added...)
	}
	if machine, err = b.Machine(); err != nil {
		return nil, fmt.Errorf("simulate %s: %w", m.Name, err)
	}
	tree, err := topology.Read(machine.FS())
	if err != nil {
		return nil, fmt.Errorf("simulate %s: %w", m.Name, err)
	}
	return New(m.Name, tree, m.GPUs, vfs, m.Links)
}

// vfs lists the VFs of a PF, made up where it has none.
func (m Machine) vfs(
	b *sysfs, t *topology.Tree, address topology.Address, count int,
) ([]placement.Device, error) {
	pf, ok := t.Device(address)
	if !ok {
		return nil, fmt.Errorf("no PCI function %s", address)
	}
	var vfs []placement.Device
	for _, a := range pf.VFs {
		vfs = append(vfs, placement.Device{ID: a.String(), Address: a})
	}
	if len(vfs) > 0 {
		return vfs, nil
	}
	link := "bus/pci/devices/" + address.String()
	target, err := fs.ReadLink(m.Sys, link)
	if err != nil {
		return nil, err
	}
	numa := -1
	if n, known := pf.NUMA.Number(); known {
		numa = n
	}
	return b.vfs(path.Join(path.Dir(link), target), address, count, numa)
}
