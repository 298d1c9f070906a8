// SPDX-License-Identifier: Apache-2.0

package history_test

import (
	"testing"

	"github.com/tandem-k8s/tandem/test/history"
)

// TestRightHistories: the model permits results that look like breaches.
func TestRightHistories(t *testing.T) {
	m := machine(t)
	gpu, vf := near(t, m, 0)
	_, farVF := near(t, m, 1)
	for name, write := range map[string]func(script){
		"a refusal of a required pair that is apart": func(s script) {
			s.arrive("a", true)
			s.allocate("a", gpus, gpu, "")
			s.allocate("a", vfs, farVF, "apart")
			s.verdict("a", "apart")
		},
		"a refusal of a device of another pod": func(s script) {
			s.arrive("a", false)
			s.allocate("a", gpus, gpu, "")
			s.arrive("b", false)
			s.allocate("b", gpus, gpu, "taken")
			s.verdict("b", "taken")
		},
		"the kubelet's own rejection": func(s script) {
			s.arrive("a", true)
			e := event(history.Verdict, "a")
			e.Refusal, e.Own = "TopologyAffinityError", true
			s.Note(e)
		},
		"a device of an ended pod": func(s script) {
			s.arrive("a", false)
			s.allocate("a", gpus, gpu, "")
			s.Note(event(history.Release, "a"))
			s.arrive("b", false)
			s.allocate("b", gpus, gpu, "")
		},
		"a device of an init container of the same pod": func(s script) {
			e := event(history.Arrival, "a")
			e.Spec = &history.Spec{Containers: []history.Container{
				{Name: "init", Init: true, Requests: s.request}, {Name: "c", Requests: s.request},
			}}
			s.Note(e)
			e = event(history.Allocation, "a")
			e.Container, e.Resource, e.Devices = "init", gpus, []string{gpu}
			s.Note(e)
			s.allocate("a", gpus, gpu, "")
			for _, container := range []string{"init", "c"} {
				e = event(history.Confirmation, "a")
				e.Container, e.Held = container, map[string][]string{gpus: {gpu}}
				s.Note(e)
			}
		},
		"a bad answer in a storm, and the best answer after the storm": func(s script) {
			s.Note(history.Event{Kind: history.Storm, Exempt: history.InStorms})
			s.arrive("a", true)
			s.allocate("a", gpus, gpu, "")
			s.ask("a", vfs, farVF)
			s.allocate("a", vfs, farVF, "")
			s.verdict("a", "")
			s.Note(history.Event{Kind: history.Calm})
			s.Note(event(history.Release, "a"))
			s.arrive("b", true)
			s.ask("b", gpus, gpu)
			s.allocate("b", gpus, gpu, "")
			s.ask("b", vfs, vf)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(m)
			write(s)
			if got := breachOf(t, s, m, history.Rules{}); got != "" {
				t.Errorf("%q", got)
			}
		})
	}
}

// TestOwnersOutliveStorms: an owner from a storm is the owner in the calm.
func TestOwnersOutliveStorms(t *testing.T) {
	m := machine(t)
	gpu, _ := near(t, m, 0)
	s := newScript(m)
	s.Note(history.Event{Kind: history.Storm, Exempt: history.InStorms})
	s.arrive("a", false)
	s.allocate("a", gpus, gpu, "")
	s.Note(history.Event{Kind: history.Calm})
	s.arrive("b", false)
	s.allocate("b", gpus, gpu, "")
	if got := breachOf(t, s, m, history.Rules{}); got != history.TwoOwners {
		t.Errorf("%q", got)
	}
}

// TestNodesAreJudgedAlone: devices of two nodes have equal IDs and other owners.
func TestNodesAreJudgedAlone(t *testing.T) {
	m := machine(t)
	gpu, _ := near(t, m, 0)
	s := newScript(m)
	for _, node := range []string{"node-1", "node-2"} {
		e := event(history.Allocation, "on-"+node)
		e.Node, e.Resource, e.Devices = node, gpus, []string{gpu}
		s.Note(e)
	}
	if got := breachOf(t, s, m, history.Rules{}); got != "" {
		t.Errorf("%q", got)
	}
}

// TestHistoryHasBound: a history with lost events is no proof.
func TestHistoryHasBound(t *testing.T) {
	r := history.New(1, history.Steps())
	for range 3 {
		r.Note(event(history.Arrival, "a"))
	}
	if h := r.History(); len(h.Events) != 1 || h.Lost != 2 {
		t.Errorf("%d events, %d lost", len(h.Events), h.Lost)
	}
	if err := history.Check(r.History(), machine(t), history.Rules{}); err == nil {
		t.Error("judged all the same")
	}
}

// TestStory: a history in plain words.
func TestStory(t *testing.T) {
	r := history.New(100, history.Steps())
	e := event(history.Arrival, "a")
	e.Spec = &history.Spec{Required: true, Containers: []history.Container{
		{Name: "c", Requests: map[string]int{gpus: 1, vfs: 2}},
	}}
	r.Note(e)
	e = event(history.Question, "a")
	e.Resource, e.Devices = gpus, []string{"g2"}
	e.Offer = &history.Offer{Available: []string{"g1", "g2"}, Size: 1}
	r.Note(e)
	e = event(history.Allocation, "a")
	e.Resource, e.Devices, e.Refusal = gpus, []string{"g2"}, "apart"
	r.Note(e)
	e = event(history.Verdict, "a")
	e.Refusal = "apart"
	r.Note(e)
	r.Note(history.Event{Kind: history.Killed, Text: "coordinator"})
	r.Call(event(history.Release, "a"))
	const want = `1-2       the kubelet begins to admit team/a (uid-a), alignment required; c requests 1 amd.com/gpu and 2 nvidia.com/vf
3-4       the kubelet asks for team/a/c: 1 of 2 amd.com/gpu (g1 g2); answer: g2
5-6       the kubelet allocates amd.com/gpu g2 to team/a/c; Tandem refuses: apart
7-8       team/a is rejected after a refusal: apart
9-10      killed: coordinator
11-       team/a ends; the kubelet has not freed the devices
`
	if got := r.History().Story(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestNodesOfAnotherState: a pod on NUMA node 0 ends after the kubelet has chosen node 1 for another pod. The
// answer can be the best for node 0.
func TestNodesOfAnotherState(t *testing.T) {
	m := machine(t)
	_, vf := near(t, m, 0)
	for ends, want := range map[bool]history.Promise{true: "", false: history.NotBest} {
		s := newScript(m)
		for _, d := range m.Devices[gpus] {
			if n, _ := d.NUMA.Number(); n == 0 {
				s.allocate("a", gpus, d.ID, "")
			}
		}
		s.arrive("b", false)
		e := event(history.Alignment, "b")
		e.Nodes = []int{1}
		s.Note(e)
		if ends {
			s.Note(event(history.Release, "a"))
		}
		s.ask("b", vfs, vf)
		if got := breachOf(t, s, m, history.Rules{}); got != want {
			t.Errorf("the pod ends %t: %q, want %q", ends, got, want)
		}
	}
}
