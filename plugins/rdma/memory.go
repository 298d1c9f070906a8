// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// memory is the daemon's state from before its start, in one file of the run directory, which lasts until the
// node boots. After a boot only the kubelet's checkpoint lists the devices of containers.
type memory struct {
	Boot string `json:"boot"` // system.Disk.BootID; not in files of earlier versions
	// Listed contains all devices reported to the kubelet as last seen, by resource name and ID. A gone device
	// has to stay listed: the kubelet crashes if a device of a container is no longer listed.
	Listed map[string]map[string]pools.Device `json:"listed"`
	// Hidden contains the properties that container namespaces may hide, by device ID.
	Hidden map[string]pools.Hidden `json:"hidden"`
	// Hints contains the last decision about the hints of each pool that leaves it to the node; not in files of
	// earlier versions.
	Hints map[string]given `json:"hints,omitempty"`
}

func newMemory(boot string) *memory {
	return &memory{Boot: boot, Listed: map[string]map[string]pools.Device{}, Hidden: map[string]pools.Hidden{}}
}

// readMemory reads the memory of a boot. That of another boot is empty.
func readMemory(file, boot string) (*memory, error) {
	m := newMemory(boot)
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err == nil {
		err = json.Unmarshal(content, m)
	}
	if err == nil && (m.Listed == nil || m.Hidden == nil) {
		err = errors.New("it is not complete")
	}
	if err == nil && m.Boot != boot {
		return newMemory(boot), nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what was known of devices from %s: %w", file, err)
	}
	for _, devices := range m.Listed {
		for id, d := range devices {
			d.ID = id // the file has it as the key
			devices[id] = d
		}
	}
	return m, nil
}

// keepHeld removes the listed devices that no container holds and that were not there last. A device of a
// container that is not in the memory is reconstructed from its ID.
func (m *memory) keepHeld(held map[string][]string, wasThere func(resource, id string) bool) {
	for resource, devices := range m.Listed {
		maps.DeleteFunc(devices, func(id string, _ pools.Device) bool {
			return !slices.Contains(held[resource], id) && !wasThere(resource, id)
		})
	}
	for resource, ids := range held {
		for _, id := range ids {
			d, ok := pools.FromID(id)
			if _, known := m.Listed[resource][id]; known || !ok {
				continue
			}
			if m.Listed[resource] == nil {
				m.Listed[resource] = map[string]pools.Device{}
			}
			m.Listed[resource][id] = d
		}
	}
}

// rememberPool updates the memory with the current devices of a pool.
func (m *memory) rememberPool(pool pools.Pool) {
	if m.Listed[pool.Name] == nil {
		m.Listed[pool.Name] = map[string]pools.Device{}
	}
	for _, d := range pool.Devices {
		if d.Visible != nil {
			m.Hidden[d.ID] = *d.Visible
		}
		d.Fault, d.Degraded, d.Selector, d.Visible = "", "", nil, nil
		m.Listed[pool.Name][d.ID] = d
	}
}

// dropUnlisted removes the hidden properties of devices that are not listed.
func (m *memory) dropUnlisted() {
	maps.DeleteFunc(m.Hidden, func(id string, _ pools.Hidden) bool {
		for _, devices := range m.Listed {
			if _, isListed := devices[id]; isListed {
				return false
			}
		}
		return true
	})
}
