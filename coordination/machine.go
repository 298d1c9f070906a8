// SPDX-License-Identifier: Apache-2.0

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

// machine is the PCI tree of the last read. A read of a node with a thousand VFs takes a tenth of a second of
// CPU time, so every change is read only once: by the plugin's scan for devices, or after an announcement.
type machine struct {
	source func() (*topology.Tree, error) // reads sysfs
	file   *nccl.File                     // may be nil

	reading sync.Mutex // serializes reads, so that the last read wins

	mu   sync.Mutex
	tree *topology.Tree // with devices moved to their places in the file
}

// newTreeReader returns a function that reads the tree below a root of sysfs.
func newTreeReader(root string) func() (*topology.Tree, error) {
	return func() (*topology.Tree, error) {
		tree, err := topology.Read(os.DirFS(root))
		if err != nil {
			return nil, fmt.Errorf("read the PCI tree below %s: %w", root, err)
		}
		return tree, nil
	}
}

// read reads and stores the tree, and returns it as in sysfs.
func (m *machine) read() (*topology.Tree, error) {
	m.reading.Lock()
	defer m.reading.Unlock()
	tree, err := m.source()
	if err != nil {
		return nil, err
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

// refresh makes the tree at least as recent as an announcement. Devices change with the machine, so another
// process's announcement causes a read. This process's plugins read the tree themselves, so that only an
// announcement of a device outside the tree causes a read.
func (m *machine) refresh(a device.Announcement) error {
	if a.Own && covers(m.newest(), a.Devices) {
		return nil
	}
	_, err := m.read()
	return err
}

// covers reports whether a tree contains all healthy devices.
func covers(tree *topology.Tree, devices []device.Device) bool {
	return !slices.ContainsFunc(devices, func(d device.Device) bool {
		_, known := tree.Device(d.Address)
		return d.Healthy && !known
	})
}
