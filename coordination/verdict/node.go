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

	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/topology"
)

// Node is a published object, prepared for verdicts. A Node never changes and may be shared.
type Node struct {
	*shape
	name      string
	kubelet   model.TopologyManager
	alignment intent.Policy
	unknown   error // why the Topology Manager is ignored; nil if it is not
	healthy   devicemanager.Set
	held      []podDevices
	object    []v1alpha1.Held
	managers  Managers
}

// podDevices are the devices that a pod holds.
type podDevices struct {
	uid        types.UID
	containers []containerDevices
	all        devicemanager.Set
}

// containerDevices are the devices of one container.
type containerDevices struct {
	name    string
	devices devicemanager.Set
	nodes   model.Mask
}

// New reads a published object. If managers is nil, verdicts ignore CPUs and memory. New returns an error if
// the object contradicts itself.
func New(topology *v1alpha1.NodeTopology, managers Managers) (*Node, error) {
	return (*Shapes)(nil).New(topology, managers)
}

// New is like [New], but nodes with the same devices at the same places share their shape.
func (s *Shapes) New(topology *v1alpha1.NodeTopology, managers Managers) (*Node, error) {
	n, err := s.readNode(topology, managers)
	if err != nil {
		return nil, fmt.Errorf("read NodeTopology %s: %w", topology.Name, err)
	}
	return n, nil
}

func (s *Shapes) readNode(topology *v1alpha1.NodeTopology, managers Managers) (*Node, error) {
	spec := &topology.Spec
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	found, err := s.shapeOf(spec)
	if err != nil {
		return nil, err
	}
	n := &Node{shape: found, name: topology.Name, object: spec.Held, managers: managers}
	n.healthy, err = readHealthy(spec, found.devices)
	if err != nil {
		return nil, err
	}
	n.alignment, err = intent.PublishedPolicy(spec.Alignment)
	if err != nil {
		return nil, err
	}
	n.kubelet, n.unknown = spec.Kubelet.TopologyManager(numaNodes(spec))
	if n.unknown != nil {
		n.kubelet = model.TopologyManager{Rule: model.Rule{Policy: model.PolicyNone}}
	}
	for _, h := range spec.Held {
		p, err := n.readHeld(h)
		if err != nil {
			return nil, fmt.Errorf("read what pod %s holds: %w", h.UID, err)
		}
		n.held = append(n.held, p)
	}
	return n, nil
}

var kinds = [...]v1alpha1.Kind{model.GPU: v1alpha1.GPU, model.VF: v1alpha1.VF}

// numaNodes returns the NUMA nodes of the machine.
func numaNodes(spec *v1alpha1.Spec) (nodes []model.NUMANode) {
	for _, n := range spec.NUMANodes {
		nodes = append(nodes, model.NUMANode{Number: n.Number, Distances: n.Distances})
	}
	return nodes
}

// readHealthy returns the healthy devices.
func readHealthy(spec *v1alpha1.Spec, devices *devicemanager.Devices) (devicemanager.Set, error) {
	healthy := devices.NewSet()
	for i, r := range devices.Resources {
		unhealthy, err := spec.Resources[i].Unhealthy.Ranges(r.Count)
		if err != nil {
			return nil, fmt.Errorf("read %s: read unhealthy devices: %w", r.Name, err)
		}
		healthy.Include(r.All)
		for _, these := range unhealthy {
			healthy.DeleteRange(r.First+these.First, r.First+these.Last)
		}
	}
	return healthy, nil
}

// readResource returns a published resource with the NUMA nodes of its devices, without their places and
// health.
func readResource(r *v1alpha1.Resource) (model.Resource, error) {
	kind := slices.Index(kinds[:], r.Kind)
	if kind < 0 {
		return model.Resource{}, fmt.Errorf("kind %q: want %s or %s", r.Kind, v1alpha1.GPU, v1alpha1.VF)
	}
	m := model.Resource{Name: r.Name, Kind: model.Kind(kind), Devices: make([]model.Device, r.Devices)}
	for _, text := range slices.Sorted(maps.Keys(r.Hints)) {
		node, err := strconv.Atoi(text)
		if err != nil || node < 0 || node > 63 {
			return m, fmt.Errorf("hint of NUMA node %q: want a number from 0 to 63", text)
		}
		numbers, err := r.Hints[text].List(r.Devices)
		if err != nil {
			return m, fmt.Errorf("read devices of NUMA node %d: %w", node, err)
		}
		for _, n := range numbers {
			if other, known := m.Devices[n].NUMA.Number(); known {
				return m, fmt.Errorf("device %d is on NUMA nodes %d and %d", n, other, node)
			}
			m.Devices[n].NUMA = topology.Node(node)
		}
	}
	return m, nil
}

// readHeld reads the devices of a pod, without resources that the node no longer has.
func (n *Node) readHeld(h v1alpha1.Held) (podDevices, error) {
	p := podDevices{uid: types.UID(h.UID), all: n.devices.NewSet()}
	for _, c := range h.Containers {
		g := containerDevices{name: c.Name, devices: n.devices.NewSet()}
		for name, devices := range c.Devices {
			i, known := n.devices.Resource(name)
			if !known {
				continue
			}
			r := &n.devices.Resources[i]
			ranges, err := devices.Ranges(r.Count)
			if err != nil {
				return podDevices{}, fmt.Errorf("read %s of container %s: %w", name, c.Name, err)
			}
			for _, have := range ranges {
				g.devices.InsertRange(r.First+have.First, r.First+have.Last)
			}
		}
		p.all.Include(g.devices)
		p.containers = append(p.containers, g)
	}
	return p, nil
}

// Unknown returns the reason why the node's Topology Manager is ignored and rejects nothing, otherwise nil.
func (n *Node) Unknown() error { return n.unknown }

// Devices returns the number of devices of the node.
func (n *Node) Devices() int {
	count := 0
	for i := range n.devices.Resources {
		count += n.devices.Resources[i].Count
	}
	return count
}

// Resources returns the names of the published resources in ascending order.
func (n *Node) Resources() []string {
	var names []string
	for i := range n.devices.Resources {
		names = append(names, n.devices.Resources[i].Name)
	}
	slices.Sort(names)
	return names
}

// Shapes shares the shapes of equal nodes, because most nodes of a cluster are equal. Shapes without a node
// are released. Shapes may be used from several goroutines.
type Shapes struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]weak.Pointer[shape]
	sweep int // number of shapes at which released shapes are removed
}

// shapeOf returns the shape of a node, if possible a known one.
func (s *Shapes) shapeOf(spec *v1alpha1.Spec) (*shape, error) {
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
