package verdict

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"weak"

	"github.com/tandem-k8s/tandem/cluster/machine"
	"github.com/tandem-k8s/tandem/cluster/v1alpha1"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// shape is what of a node stays while pods come and go: its devices and where they are.
type shape struct {
	*machine.Machine
	resources []resource
	index     map[string]int // of the resources, by name
	words     int            // of a set
	members   map[string]int // devices as members of sets, by the IDs that placement has
	kinds     [2]set         // all GPUs, all VFs
	switches  []bridged
}

// resource is a resource of the node.
type resource struct {
	name   string
	kind   int // gpu or vf
	count  int
	from   int           // its first device as a member of sets
	all    set           // its devices
	hinted bool          // the kubelet was told the NUMA node of some
	total  hints.PerNode // devices by the NUMA node that the kubelet was told, unhealthy ones too
	on     []set         // likewise
}

// bridged are the devices of a switch that makes same-switch pairs.
type bridged struct {
	devices [2]set // GPUs, VFs
}

// The kinds of device as indices.
const (
	gpu = iota
	vf
)

func (s *shape) none() set { return make(set, s.words) }

// Shapes shares what equal nodes have in common, as most nodes of a cluster are equal. It keeps nothing that
// no node uses any more. It may be used from several goroutines.
type Shapes struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]weak.Pointer[shape]
	sweep int // of so many shapes those that are gone are removed
}

// shape finds or makes the shape of a node.
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

// shapeKey is a hash of all of an object that a shape is made of.
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
	s := &shape{Machine: m, index: map[string]int{}, members: map[string]int{}}
	for i := range spec.Resources {
		s.words += (spec.Resources[i].Devices + 63) / 64
	}
	s.kinds = [2]set{s.none(), s.none()}
	from := 0
	for i := range spec.Resources {
		r, err := s.resource(&spec.Resources[i], from)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", spec.Resources[i].Name, err)
		}
		for n, d := range m.Devices[i] {
			s.members[d.ID] = from + n
		}
		from += (r.count + 63) / 64 * 64
		s.index[r.name] = i
		s.kinds[r.kind].join(r.all)
		s.resources = append(s.resources, r)
	}
	s.bridge(spec)
	return s, nil
}

func (s *shape) resource(published *v1alpha1.Resource, from int) (resource, error) {
	r := resource{name: published.Name, count: published.Devices, from: from, all: s.none()}
	switch published.Kind {
	case v1alpha1.GPU:
		r.kind = gpu
	case v1alpha1.VF:
		r.kind = vf
	default:
		return r, fmt.Errorf("kind %q: want %s or %s", published.Kind, v1alpha1.GPU, v1alpha1.VF)
	}
	if r.count > 0 {
		r.all.fill(from, from+r.count-1)
	}
	for text, devices := range published.Hints {
		node, err := strconv.Atoi(text)
		if err != nil || node < 0 || node > 63 {
			return r, fmt.Errorf("hint of NUMA node %q: want a number from 0 to 63", text)
		}
		ranges, err := devices.Ranges(r.count)
		if err != nil {
			return r, fmt.Errorf("read devices of NUMA node %d: %w", node, err)
		}
		for len(r.on) <= node {
			r.on = append(r.on, s.none())
		}
		for _, there := range ranges {
			r.on[node].fill(from+there.First, from+there.Last)
			r.hinted = true
		}
	}
	for _, on := range r.on {
		r.total = append(r.total, on.count())
	}
	return r, nil
}

// bridge notes what is on the switches.
func (s *shape) bridge(spec *v1alpha1.Spec) {
	all := make([]bridged, len(spec.Switches))
	for i := range all {
		all[i] = bridged{[2]set{s.none(), s.none()}}
	}
	for k, r := range s.resources {
		for n, at := range s.Machine.Switches[k] {
			if at >= 0 {
				all[at].devices[r.kind].add(r.from + n)
			}
		}
	}
	for i, b := range all {
		if !spec.Switches[i].Alone && b.devices[gpu].count() > 0 && b.devices[vf].count() > 0 {
			s.switches = append(s.switches, b)
		}
	}
}

// pairs counts the same-switch pairs that devices make.
func (s *shape) pairs(of set) int {
	sum := 0
	for i := range s.switches {
		on := &s.switches[i]
		sum += min(of.both(on.devices[gpu]), of.both(on.devices[vf]))
	}
	return sum
}
