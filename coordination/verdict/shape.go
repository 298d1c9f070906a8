// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"crypto/sha256"
	"encoding/json"
	"maps"
	"sync"
	"weak"

	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/coordination/machine"
	"github.com/tandem-k8s/tandem/coordination/preference"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
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
func (s *Shapes) shape(spec *v1alpha1.Spec, node *model.Node) (*shape, error) {
	if s == nil {
		return newShape(spec, node)
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
	made, err := newShape(spec, node)
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

func newShape(spec *v1alpha1.Spec, node *model.Node) (*shape, error) {
	m, err := machine.New(spec)
	if err != nil {
		return nil, err
	}
	var announced []devicemanager.Announcement
	for i, r := range node.Resources {
		a := devicemanager.Announcement{Name: r.Name, Kind: r.Kind}
		for n, d := range r.Devices {
			a.Devices = append(a.Devices, devicemanager.Device{Device: m.Devices[i][n], NUMA: d.NUMA})
		}
		announced = append(announced, a)
	}
	s := &shape{devices: devicemanager.New(announced), tree: m.Tree, links: m.Links}
	s.switches = s.bridge(spec, m)
	return s, nil
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
