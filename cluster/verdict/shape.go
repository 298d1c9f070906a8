// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"weak"

	"github.com/tandem-k8s/tandem/cluster/machine"
	"github.com/tandem-k8s/tandem/cluster/v1alpha1"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/preference"
	"github.com/tandem-k8s/tandem/topology"
)

// shape is the part of a node that pods do not change: the devices and their places.
type shape struct {
	devices  *devicemanager.Node
	tree     *topology.Tree
	links    []topology.Link
	switches preference.Switches
}

// Shapes shares the shapes of equal nodes, because most nodes of a cluster are equal. Shapes without a node
// are released. Shapes may be used from several goroutines.
type Shapes struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]weak.Pointer[shape]
	sweep int // number of shapes at which released shapes are removed
}

// shape returns the shape of a node, if possible a known one.
func (s *Shapes) shape(spec *v1alpha1.Spec) (*shape, error) {
	if s == nil {
		return newShape(spec)
	}
	key, err := shapeKey(spec)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	known := s.known[key].Value()
	s.mu.Unlock()
	if known != nil {
		return known, nil
	}
	made, err := newShape(spec)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[[sha256.Size]byte]weak.Pointer[shape]{}
	}
	if len(s.known) >= s.sweep {
		maps.DeleteFunc(s.known, func(_ [sha256.Size]byte, p weak.Pointer[shape]) bool { return p.Value() == nil })
		s.sweep = 2 * (len(s.known) + 1)
	}
	s.known[key] = weak.Make(made)
	return made, nil
}

// shapeKey returns a hash of the fields of an object that determine the shape.
func shapeKey(spec *v1alpha1.Spec) (key [sha256.Size]byte, err error) {
	fixed := v1alpha1.Spec{Switches: spec.Switches, Links: spec.Links}
	for _, r := range spec.Resources {
		r.Unhealthy = ""
		fixed.Resources = append(fixed.Resources, r)
	}
	for _, n := range spec.NUMANodes {
		fixed.NUMANodes = append(fixed.NUMANodes, v1alpha1.NUMANode{Number: n.Number})
	}
	text, err := json.Marshal(fixed)
	return sha256.Sum256(text), err
}

func newShape(spec *v1alpha1.Spec) (*shape, error) {
	m, err := machine.New(spec)
	if err != nil {
		return nil, err
	}
	var announced []devicemanager.Announcement
	for i := range spec.Resources {
		a, err := announcement(&spec.Resources[i])
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", spec.Resources[i].Name, err)
		}
		for n, d := range m.Devices[i] {
			a.Devices[n].Device = d
		}
		announced = append(announced, a)
	}
	s := &shape{devices: devicemanager.New(announced), tree: m.Tree, links: m.Links}
	s.switches = s.bridge(spec, m)
	return s, nil
}

// announcement returns the device list of a resource's plugin, without the places of the devices.
func announcement(r *v1alpha1.Resource) (devicemanager.Announcement, error) {
	a := devicemanager.Announcement{Name: r.Name, Devices: make([]devicemanager.Device, r.Devices)}
	switch r.Kind {
	case v1alpha1.GPU:
		a.Kind = devicemanager.GPU
	case v1alpha1.VF:
		a.Kind = devicemanager.VF
	default:
		return a, fmt.Errorf("kind %q: want %s or %s", r.Kind, v1alpha1.GPU, v1alpha1.VF)
	}
	for _, text := range slices.Sorted(maps.Keys(r.Hints)) {
		node, err := strconv.Atoi(text)
		if err != nil || node < 0 || node > 63 {
			return a, fmt.Errorf("hint of NUMA node %q: want a number from 0 to 63", text)
		}
		ranges, err := r.Hints[text].Ranges(r.Devices)
		if err != nil {
			return a, fmt.Errorf("read devices of NUMA node %d: %w", node, err)
		}
		for _, there := range ranges {
			for n := there.First; n <= there.Last; n++ {
				if other, known := a.Devices[n].NUMA.Number(); known {
					return a, fmt.Errorf("device %d is on NUMA nodes %d and %d", n, other, node)
				}
				a.Devices[n].NUMA = topology.Node(node)
			}
		}
	}
	return a, nil
}

// bridge returns the switches with same-switch pairs.
func (s *shape) bridge(spec *v1alpha1.Spec, m *machine.Machine) preference.Switches {
	all := make(preference.Switches, len(spec.Switches))
	for i := range all {
		all[i] = [2]devicemanager.Set{s.devices.NewSet(), s.devices.NewSet()}
	}
	for k, r := range s.devices.Resources {
		for n, at := range m.Switches[k] {
			if at >= 0 {
				all[at][r.Kind].Insert(r.First + n)
			}
		}
	}
	var switches preference.Switches
	for i, on := range all {
		if !spec.Switches[i].Alone && on[devicemanager.GPU].Len() > 0 && on[devicemanager.VF].Len() > 0 {
			switches = append(switches, on)
		}
	}
	return switches
}
