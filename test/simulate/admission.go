// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"math/rand/v2"
	"slices"

	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Rules are the kubelet's settings for admissions.
type Rules struct {
	Policy          model.Policy
	ExcludeTopology bool // VFs are announced without NUMA nodes
}

// State is the allocation of a node's devices.
type State struct {
	Node    *Node
	Rules   Rules // of the node's kubelet
	rule    model.Rule
	devices *devicemanager.Devices // as announced to the kubelet
	all     devicemanager.Set
	free    devicemanager.Set
}

// newState returns a node with everything free.
func newState(node *Node, rules Rules) *State {
	s := &State{
		Node: node, Rules: rules, devices: node.told[0],
		rule: model.Rule{Policy: rules.Policy, Machine: 1<<len(node.NUMA) - 1},
	}
	if rules.ExcludeTopology {
		s.devices = node.told[1]
	}
	s.all = s.devices.OfKind[GPU].Clone()
	s.all.Include(s.devices.OfKind[VF])
	s.free = s.all.Clone()
	return s
}

// list returns the devices of a kind in a set, ascending.
func (s *State) list(kind Kind, of devicemanager.Set) []int {
	r := &s.devices.Resources[kind]
	devices := make([]int, 0, of.Common(r.All))
	for i := range r.Count {
		if of.Has(r.First + i) {
			devices = append(devices, i)
		}
	}
	return devices
}

func (s *State) set(kind Kind, devices []int) devicemanager.Set {
	set := s.devices.NewSet()
	for _, i := range devices {
		set.Insert(s.devices.Resources[kind].First + i)
	}
	return set
}

func (s *State) take(kind Kind, devices []int) {
	s.free.Exclude(s.set(kind, devices))
}

// Take gives devices to a container, without an admission.
func (s *State) Take(c Container) {
	s.take(GPU, c.Devices[GPU])
	s.take(VF, c.Devices[VF])
}

// Release makes the devices of a container free again.
func (s *State) Release(c Container) {
	for _, kind := range Kinds {
		s.free.Include(s.set(kind, c.Devices[kind]))
	}
}

// Stranded returns the number of pairs that the free devices could make regardless of switches, less those
// possible on switches.
func (s *State) Stranded() int { return s.Node.switches.Stranded(s.devices, s.free) }

// Affinity returns the NUMA nodes that the Topology Manager gives a container, and whether it admits the
// container. Under policy none there are no nodes.
func (s *State) Affinity(r Request) (model.Mask, bool) {
	best, admitted := s.admission(r, GPU, nil).Merge(0, r.requests(GPU))
	return s.mask(best.Nodes), admitted
}

// mask returns all nodes if the Topology Manager has chosen none.
func (s *State) mask(nodes model.Mask) model.Mask {
	if nodes == 0 && s.Rules.Policy != model.PolicyNone {
		return 1<<len(s.Node.NUMA) - 1
	}
	return nodes
}

// Fits reports whether enough devices are free by number.
func (s *State) Fits(r Request) bool { return r.GPUs <= s.Free(GPU) && r.VFs <= s.Free(VF) }

// Taken reports whether a container has a device.
func (s *State) Taken(kind Kind, i int) bool { return !s.free.Has(s.devices.Resources[kind].First + i) }

// Free returns the number of free devices of a kind.
func (s *State) Free(kind Kind) int { return s.free.Common(s.devices.OfKind[kind]) }

// FreeOn returns the number of free devices on a switch.
func (s *State) FreeOn(kind Kind, at int) int { return s.free.Common(s.Node.switches[at][kind]) }

// Container has the devices of a container, as indices of the node's devices.
type Container struct {
	Request Request
	Devices [2][]int
}

// Question is the kubelet's request for preferred devices.
type Question struct {
	Kind      Kind
	Available []int // ascending, including Must
	Must      []int
	Size      int
	Request   Request    // the container's whole request, which the kubelet does not pass
	Allocated [2][]int   // devices that the container has already
	Mask      model.Mask // the NUMA nodes of the container, which the kubelet does not pass either

	asked devicemanager.Question
}

// Prefer returns preferred devices among the available ones. If there are too few, or others, the kubelet
// picks at random.
type Prefer func(s *State, q Question, rng *rand.Rand) []int

// Outcome is the outcome of an admission.
type Outcome int

// The outcomes. A container that does not fit would wait in the scheduler; a refused one has failed.
const (
	doesNotFit Outcome = iota
	Refused
	Admitted
)

// Admit requests devices for a container like the kubelet, one half after the other, and takes them.
func (s *State) Admit(r Request, first Kind, prefer Prefer, rng *rand.Rand) (Container, Outcome) {
	g := &guest{state: s, prefer: prefer, rng: rng, container: Container{Request: r}}
	if !s.Fits(r) {
		return g.container, doesNotFit
	}
	if s.admission(r, first, g).Admit() != nil {
		return g.container, Refused
	}
	return g.container, Admitted
}

// admission returns the admission of a container.
func (s *State) admission(r Request, first Kind, others devicemanager.Others) *devicemanager.Admission {
	return &devicemanager.Admission{
		Node: s.devices, Kubelet: model.TopologyManager{Rule: s.rule}, Others: others,
		Containers: []model.Container{{Requests: r.requests(first)}},
		Healthy:    s.all, Taken: s.all.Difference(s.free), Reusable: s.devices.NewSet(),
	}
}

// requests returns a container's requests, the first kind first.
func (r Request) requests(first Kind) model.Requests {
	requests := make(model.Requests, 0, len(Kinds))
	for _, kind := range [...]Kind{first, first.Other()} {
		if n := r.Of(kind); n > 0 {
			requests = append(requests, model.Request{Resource: int(kind), Count: n})
		}
	}
	return requests
}

// guest is a container in admission; it answers in place of the plugins.
type guest struct {
	state     *State
	prefer    Prefer
	rng       *rand.Rand
	container Container
}

// Hints returns none: CPUs and memory are ignored.
func (g *guest) Hints(int) []model.Hints { return nil }

// Prefer answers a question, after taking the devices that the container has got before.
func (g *guest) Prefer(_ int, q devicemanager.Question) devicemanager.Set {
	s, kind := g.state, Kind(q.Resource)
	g.take(kind.Other(), q.Allocated)
	answer := g.prefer(s, Question{
		Kind: kind, Available: s.list(kind, q.Available()), Must: s.list(kind, q.Must), Size: q.Size,
		Request: g.container.Request, Allocated: g.container.Devices, Mask: s.mask(q.Nodes), asked: q,
	}, g.rng)
	return s.set(kind, answer)
}

// Pick picks at random.
func (g *guest) Pick(of devicemanager.Set, count int) devicemanager.Set {
	var devices []int
	of.Each(func(i int) { devices = append(devices, i) })
	picked := g.state.devices.NewSet()
	for _, i := range machine.PickRandom(devices, count, g.rng) {
		picked.Insert(i)
	}
	return picked
}

// Allocate takes the devices that are not yet taken.
func (g *guest) Allocate(_ int, _ model.Hint, devices devicemanager.Set) error {
	for _, kind := range Kinds {
		g.take(kind, devices)
	}
	return nil
}

func (g *guest) take(kind Kind, devices devicemanager.Set) {
	if len(g.container.Devices[kind]) == 0 {
		g.container.Devices[kind] = g.state.list(kind, devices)
		g.state.take(kind, g.container.Devices[kind])
	}
}

// Offered lists the devices that the kubelet allows for a container: devices on the container's NUMA nodes
// first, then those on other nodes, then those with unknown nodes.
func (s *State) Offered(kind Kind, q Question) []int {
	r := &s.devices.Resources[kind]
	aligned := r.Aligned(s.free, q.Mask)
	switch {
	case aligned.Len() >= q.Request.Of(kind):
		return s.list(kind, aligned)
	case q.Mask == 0:
		return s.list(kind, s.free)
	}
	hinted := r.Aligned(s.free, ^model.Mask(0))
	return slices.Concat(s.list(kind, aligned), s.list(kind, hinted.Difference(aligned)),
		s.list(kind, s.free.Difference(hinted)))
}

// Preference returns the coordinator's request to package placement for a question of a container with the
// question's Request.
func (q Question) Preference(s *State) placement.Request {
	view := devicemanager.View{
		Node: s.devices, Links: s.Node.Links, Kubelet: model.TopologyManager{Rule: s.rule},
		Free: s.free, Allocated: q.asked.Allocated,
		Taken: s.all.Difference(s.free).Difference(q.asked.Allocated),
	}
	return view.Placement(view.Halves(&q.asked, q.Request.requests(q.Kind), nil))
}

// Chosen returns the chosen devices of the question's kind.
func (q Question) Chosen(s *State, choice placement.Choice) []int {
	return s.list(q.Kind, s.devices.Chosen(choice))
}
