// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"encoding/json"
	"fmt"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/topology"
)

// Saved is the written form of a resource, with the addresses of devices: a restarted plugin may not find a
// device any more.
type Saved struct {
	Name    string          `json:"name"`
	Kind    device.Kind     `json:"kind"`
	Devices json.RawMessage `json:"devices"` // a list of savedDevice
}

type savedDevice struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	NUMA    *int   `json:"numa,omitempty"`
	Unit    string `json:"unit,omitempty"`
	Shared  bool   `json:"shared,omitempty"`
}

// saveDevices returns the written form of devices. The file is written far more often than devices are
// announced, so that each announcement is encoded once.
func saveDevices(devices []device.Device) json.RawMessage {
	saved := make([]savedDevice, 0, len(devices))
	for _, d := range devices {
		one := savedDevice{ID: d.ID, Address: d.Address.String(), Unit: d.Unit.Name, Shared: d.Unit.Shared}
		if n, known := d.NUMA.Number(); known {
			one.NUMA = &n
		}
		saved = append(saved, one)
	}
	content, _ := json.Marshal(saved) // only strings and numbers
	return content
}

// restore returns the devices of a resource, none of them healthy.
func (s Saved) restore() (devices []device.Device, err error) {
	if s.Name == "" || (s.Kind != device.GPU && s.Kind != device.VF) {
		return nil, fmt.Errorf("resource %q of kind %q", s.Name, s.Kind)
	}
	var saved []savedDevice
	if err := json.Unmarshal(s.Devices, &saved); err != nil {
		return nil, fmt.Errorf("devices of %s: %w", s.Name, err)
	}
	for _, one := range saved {
		address, err := topology.ParseAddress(one.Address)
		if err != nil {
			return nil, fmt.Errorf("device %s of %s: %w", one.ID, s.Name, err)
		}
		d := device.Device{
			ID: one.ID, Address: address, Unit: topology.Unit{Name: one.Unit, Shared: one.Shared},
		}
		if one.NUMA != nil && *one.NUMA >= 0 {
			d.NUMA = topology.Node(*one.NUMA)
		}
		devices = append(devices, d)
	}
	return devices, nil
}
