// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"encoding/json"
	"fmt"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/topology"
)

// Saved is a resource as it is written down: where its devices are, for a plugin that starts anew and no
// longer finds one.
type Saved struct {
	Name    string          `json:"name"`
	Kind    device.Kind     `json:"kind"`
	Devices json.RawMessage `json:"devices"` // a list of savedDevice
}

type savedDevice struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	NUMA    *int   `json:"numa,omitempty"`
}

// Save is a set as it is written down.
func (s Set) Save() (saved []Saved) {
	for _, r := range s.All() {
		saved = append(saved, Saved{r.Name, r.Kind, r.saved})
	}
	return saved
}

// saveDevices is what an announcement leaves in the file. It is made once: the file is written far more often
// than devices are announced.
func saveDevices(devices []device.Device) json.RawMessage {
	saved := make([]savedDevice, 0, len(devices))
	for _, d := range devices {
		one := savedDevice{ID: d.ID, Address: d.Address.String()}
		if n, known := d.NUMA.Number(); known {
			one.NUMA = &n
		}
		saved = append(saved, one)
	}
	content, _ := json.Marshal(saved) // of strings and numbers
	return content
}

// Restore makes a set of what was saved. No plugin is connected, and no device is healthy until its plugin
// says so.
func Restore(saved []Saved) (Set, error) {
	s := Set{}
	for _, of := range saved {
		devices, err := of.restore()
		if err != nil {
			return nil, err
		}
		s[of.Name] = New(of.Name, of.Kind, devices)
		s[of.Name].Restored = true
	}
	if len(s) > MaxResources {
		return nil, fmt.Errorf("%d resources, more than %d", len(s), MaxResources)
	}
	return s, nil
}

func (s Saved) restore() (devices []device.Device, err error) {
	if s.Name == "" || (s.Kind != device.GPU && s.Kind != device.VF) {
		return nil, fmt.Errorf("resource %q of kind %q", s.Name, s.Kind)
	}
	var saved []savedDevice
	if err := json.Unmarshal(s.Devices, &saved); err != nil {
		return nil, fmt.Errorf("devices of %s: %w", s.Name, err)
	}
	if len(saved) > MaxDevices {
		return nil, fmt.Errorf("%d devices of %s, more than %d", len(saved), s.Name, MaxDevices)
	}
	for _, one := range saved {
		address, err := topology.ParseAddress(one.Address)
		if err != nil {
			return nil, fmt.Errorf("device %s of %s: %w", one.ID, s.Name, err)
		}
		d := device.Device{ID: one.ID, Address: address}
		if one.NUMA != nil && *one.NUMA >= 0 {
			d.NUMA = topology.Node(*one.NUMA)
		}
		devices = append(devices, d)
	}
	return devices, nil
}
