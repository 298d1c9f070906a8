// SPDX-License-Identifier: Apache-2.0

package world

import (
	"math/rand/v2"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/coordination/preference"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Question is what the kubelet asks when it wants to know which devices are preferred.
type Question struct {
	Kind      Kind
	Available []int // ascending; those of Must among them
	Must      []int
	Size      int
	Request   Request    // what the container asks for in all, which the kubelet does not tell
	Given     [2][]int   // what the container has been given already
	Mask      hints.Mask // the NUMA nodes of the container, which the kubelet does not tell either

	asked devicemanager.Question
}

// Prefer answers a question: devices of those available. Where they are too few or others the kubelet picks
// at random.
type Prefer func(s *State, q Question, rng *rand.Rand) []int

// Outcome is what became of a container.
type Outcome int

// The outcomes. A container that does not fit would wait in the scheduler; one that is refused has failed.
const (
	DoesNotFit Outcome = iota
	Refused
	Admitted
)

// Admit asks for devices for a container as the kubelet does, one half after the other, and takes them.
func (s *State) Admit(r Request, first Kind, prefer Prefer, rng *rand.Rand) (Container, Outcome) {
	g := &guest{state: s, prefer: prefer, rng: rng, container: Container{Request: r}}
	if !s.Fits(r) {
		return g.container, DoesNotFit
	}
	s.last++
	if s.admission(r, first, g).Admit() != nil {
		s.last--
		return g.container, Refused
	}
	return g.container, Admitted
}

// admission is that of a container.
func (s *State) admission(r Request, first Kind, others devicemanager.Others) *devicemanager.Admission {
	return &devicemanager.Admission{
		Node: s.devices, Kubelet: devicemanager.Kubelet{Rule: s.rule}, Others: others,
		Containers: []devicemanager.Container{{Requests: r.requests(first)}},
		Healthy:    s.all, Taken: s.all.Difference(s.free), Reusable: s.devices.NewSet(),
	}
}

// requests are those of a container, the first kind first.
func (r Request) requests(first Kind) devicemanager.Requests {
	requests := make(devicemanager.Requests, 0, len(Kinds))
	for _, kind := range [...]Kind{first, first.Other()} {
		if n := r.Of(kind); n > 0 {
			requests = append(requests, devicemanager.Request{Resource: int(kind), Count: n})
		}
	}
	return requests
}

// guest is a container in admission: it answers for the plugins.
type guest struct {
	state     *State
	prefer    Prefer
	rng       *rand.Rand
	container Container
}

// Hints are none: CPUs and memory are not looked at.
func (g *guest) Hints(int) []hints.List { return nil }

// Prefer puts a question. By then the container has what it has been given.
func (g *guest) Prefer(_ int, q devicemanager.Question) devicemanager.Set {
	s, kind := g.state, Kind(q.Resource)
	g.take(kind.Other(), q.Given)
	answer := g.prefer(s, Question{
		Kind: kind, Available: s.list(kind, q.Available()), Must: s.list(kind, q.Must), Size: q.Size,
		Request: g.container.Request, Given: g.container.Devices, Mask: s.mask(q.Nodes), asked: q,
	}, g.rng)
	return s.set(kind, answer)
}

// Pick picks at random.
func (g *guest) Pick(of devicemanager.Set, count int) devicemanager.Set {
	var devices []int
	of.Each(func(i int) { devices = append(devices, i) })
	picked := g.state.devices.NewSet()
	for _, i := range Pick(devices, count, g.rng) {
		picked.Insert(i)
	}
	return picked
}

// Allocate takes what is not taken yet.
func (g *guest) Allocate(_ int, _ hints.Hint, devices devicemanager.Set) error {
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

// FreeDevices lists the free devices of a kind.
func (s *State) FreeDevices(kind Kind) []int { return s.list(kind, s.free) }

// Offered lists what the kubelet will let a container choose from: devices on its nodes first, then those on
// other nodes, then those on none that it knows.
func (s *State) Offered(kind Kind, q Question) []int {
	r := &s.devices.Resources[kind]
	aligned := r.Aligned(s.free, q.Mask)
	switch {
	case aligned.Len() >= q.Request.Of(kind):
		return s.list(kind, aligned)
	case q.Mask == 0:
		return s.list(kind, s.free)
	}
	hinted := r.Aligned(s.free, ^hints.Mask(0))
	return slices.Concat(s.list(kind, aligned), s.list(kind, hinted.Difference(aligned)),
		s.list(kind, s.free.Difference(hinted)))
}

// Preference is the request that the coordinator puts to placement where the question comes from a container
// with the question's Request.
func (q Question) Preference(s *State) placement.Request {
	view := preference.View{
		Node: s.devices, Links: s.Node.Links, Free: s.free, Given: q.asked.Given,
		Taken: s.all.Difference(s.free).Difference(q.asked.Given),
	}
	return view.Placement(view.Halves(&q.asked, q.Request.requests(q.Kind), nil))
}

// Chosen lists the devices of a kind that were chosen.
func (s *State) Chosen(kind Kind, choice placement.Choice) []int {
	return s.list(kind, s.devices.Chosen(choice))
}
