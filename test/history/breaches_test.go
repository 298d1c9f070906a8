// SPDX-License-Identifier: Apache-2.0

package history_test

import (
	"testing"

	"github.com/tandem-k8s/tandem/test/history"
)

// TestBreachesAreFound: each hand-made history breaks one promise, and the same history without that event
// breaks none.
func TestBreachesAreFound(t *testing.T) {
	m := machine(t)
	gpu, vf := near(t, m, 0)
	farGPU, farVF := near(t, m, 1)
	// admit admits a pod with the near pair.
	admit := func(s script, pod string) {
		s.arrive(pod, true)
		s.ask(pod, gpus, gpu)
		s.allocate(pod, gpus, gpu, "")
		s.ask(pod, vfs, vf)
		s.allocate(pod, vfs, vf, "")
		s.verdict(pod, "")
	}
	for name, c := range map[string]struct {
		promise history.Promise
		right   func(script)
		wrong   func(script) // after right
	}{
		"a device of a living pod": {history.TwoOwners, func(s script) { admit(s, "a") },
			func(s script) { s.arrive("b", false); s.allocate("b", gpus, gpu, "") }},
		"a record of a device of a living pod": {history.TwoOwners, func(s script) { admit(s, "a") },
			func(s script) {
				e := event(history.Confirmation, "b")
				e.Held = map[string][]string{gpus: {gpu}}
				s.Note(e)
			}},
		"another container's name": {history.Another, func(s script) { admit(s, "a") },
			func(s script) {
				e := event(history.Allocation, "b")
				e.Resource, e.Devices, e.Named = gpus, []string{farGPU}, &history.Name{Pod: "team/a", Container: "c"}
				s.Note(e)
			}},
		"devices that the kubelet did not allocate": {history.OtherDevices, func(s script) { s.arrive("a", false) },
			func(s script) {
				e := event(history.Allocation, "a")
				e.Resource, e.Devices, e.Order = gpus, []string{gpu}, []string{farGPU}
				s.Note(e)
			}},
		"an answer outside the offer": {history.Contract, func(s script) { s.arrive("a", false) },
			func(s script) { s.ask("a", gpus, gpu, gpu) }},
		"no answer": {history.NoAnswer, func(s script) { s.arrive("a", false) },
			func(s script) {
				e := event(history.Question, "a")
				e.Alone, e.Resource = true, gpus
				s.Note(e)
			}},
		"a second half far from the first": {history.NotBest,
			func(s script) { s.arrive("a", false); s.ask("a", gpus, gpu); s.allocate("a", gpus, gpu, "") },
			func(s script) { s.ask("a", vfs, farVF) }},
		"a first half whose second is taken": {history.NotBest,
			func(s script) { s.arrive("b", false); s.allocate("b", vfs, vf, ""); s.arrive("a", false) },
			func(s script) { s.ask("a", gpus, gpu) }},
		"a required pair on two switches": {history.NotEnforced,
			func(s script) { s.arrive("a", true); s.allocate("a", gpus, gpu, ""); s.allocate("a", vfs, farVF, "") },
			func(s script) { s.verdict("a", "") }},
		"an answer with a device of another pod": {history.Forgotten,
			func(s script) { admit(s, "a"); s.arrive("b", false) }, func(s script) { s.ask("b", gpus, gpu) }},
		"a confirmed device taken for free": {history.Forgotten,
			func(s script) {
				e := event(history.Confirmation, "a")
				e.Held = map[string][]string{gpus: {gpu}}
				s.Note(e)
				s.arrive("b", false)
			},
			func(s script) { s.askKnowing("b", farGPU, s.all[gpus]) }},
		"a free device taken for held": {history.Stuck,
			func(s script) { s.arrive("a", false); s.askKnowing("a", gpu, s.all[gpus]) },
			func(s script) { s.askKnowing("a", gpu, without(s.all[gpus], farGPU)) }},
		"a refusal without a reason": {history.Refused, func(s script) { s.arrive("a", false) },
			func(s script) { s.allocate("a", gpus, gpu, "no pair") }},
		"a refusal of a pair that is near": {history.Refused,
			func(s script) { s.arrive("a", true); s.allocate("a", gpus, gpu, "") },
			func(s script) { s.allocate("a", vfs, vf, "no pair") }},
		"a rejection that nobody has decided": {history.Refused, func(s script) { s.arrive("a", true) },
			func(s script) { s.verdict("a", "unexpected") }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(m)
			c.right(s)
			if got := breachOf(t, s, m, history.Rules{}); got != "" {
				t.Fatalf("%s, before the breach", got)
			}
			c.wrong(s)
			if got := breachOf(t, s, m, history.Rules{}); got != c.promise {
				t.Errorf("%q, want %q", got, c.promise)
			}
			if got := breachOf(t, s, m, history.Rules{Exempt: []history.Promise{c.promise}}); got == c.promise {
				t.Errorf("%q, though exempt", got)
			}
		})
	}
}

// askKnowing is ask with the devices that the answer takes for free.
func (s script) askKnowing(pod, answer string, free []string) {
	e := event(history.Question, pod)
	e.Resource, e.Devices, e.Free = gpus, []string{answer}, map[string][]string{gpus: free}
	e.Offer = &history.Offer{Size: 1, Available: s.all[gpus]}
	s.Note(e)
}

// TestSimultaneousEventsHaveAnyOrder: a pod that ends during questions can be there for the first answers and
// gone for the others, but never there again.
func TestSimultaneousEventsHaveAnyOrder(t *testing.T) {
	m := machine(t)
	gpu, _ := near(t, m, 0)
	farGPU, _ := near(t, m, 1)
	for name, c := range map[string]struct {
		free    []bool // for each answer: the pod's device is
		promise history.Promise
	}{
		"there for all":             {[]bool{false, false}, ""},
		"gone for all":              {[]bool{true, true}, ""},
		"gone for the second":       {[]bool{false, true}, ""},
		"there again after the end": {[]bool{true, false}, history.Stuck},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(m)
			s.request = map[string]int{gpus: 1}
			s.arrive("a", false)
			s.allocate("a", gpus, gpu, "")
			end := s.Call(event(history.Release, "a"))
			s.arrive("b", false)
			for _, free := range c.free {
				known := without(s.all[gpus], gpu)
				if free {
					known = s.all[gpus]
				}
				s.askKnowing("b", farGPU, known)
			}
			s.Return(end, nil)
			if got := breachOf(t, s, m, history.Rules{}); got != c.promise {
				t.Errorf("%q, want %q", got, c.promise)
			}
		})
	}
}
