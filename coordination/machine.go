package coordination

import (
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/nccl"
)

// machine is the PCI tree as this process has read it last. A node with a thousand VFs takes a tenth of a
// second of processor time to read, so that every change is read once: by the plugin that looks for its
// devices, or else because of what is announced.
type machine struct {
	root string
	file *nccl.File // nil for none

	reading sync.Mutex // one after the other, so that what is read last stays

	mu   sync.Mutex
	tree *topology.Tree // with the devices where the file has them
}

// read reads the tree, which is the newest from now on, and returns it as sysfs has it.
func (m *machine) read() (*topology.Tree, error) {
	m.reading.Lock()
	defer m.reading.Unlock()
	tree, err := topology.Read(os.DirFS(m.root))
	if err != nil {
		return nil, fmt.Errorf("read the PCI tree below %s: %w", m.root, err)
	}
	placed := tree
	if m.file != nil {
		if placed, err = m.file.Apply(tree); err != nil {
			return nil, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tree = placed
	return tree, nil
}

func (m *machine) newest() *topology.Tree {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tree
}

// refresh makes the newest tree at least as new as an announcement. Devices change when the machine does, so
// that it is read for what another process announces; this one's plugins read it themselves, or announce a
// device that it lacks.
func (m *machine) refresh(a device.Announcement) error {
	if a.Own && covers(m.newest(), a.Devices) {
		return nil
	}
	_, err := m.read()
	return err
}

// covers reports whether a tree has all healthy devices.
func covers(tree *topology.Tree, devices []device.Device) bool {
	return !slices.ContainsFunc(devices, func(d device.Device) bool {
		_, known := tree.Device(d.Address)
		return d.Healthy && !known
	})
}
