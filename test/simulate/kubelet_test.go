// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
)

// The cases were tried on the kubelet's own managers, on two NUMA nodes with four GPUs each.
func TestTopologyManager(t *testing.T) {
	const both = model.Mask(3)
	for _, c := range []struct {
		name     string
		vfs      int // per PF
		rules    Rules
		free     [2]int // GPUs by NUMA node
		request  Request
		mask     model.Mask
		admitted bool
	}{
		{"pairs on one node", 4, Rules{Policy: model.Restricted}, [2]int{4, 4}, Request{4, 4}, 1, true},
		{"5+5 with many VFs", 4, Rules{Policy: model.Restricted}, [2]int{4, 4}, Request{5, 5}, both, false},
		{"8+8 with many VFs", 4, Rules{Policy: model.Restricted}, [2]int{4, 4}, Request{8, 8}, both, false},
		{"8+8 with two VFs per PF", 2, Rules{Policy: model.Restricted}, [2]int{4, 4}, Request{8, 8}, both, false},
		{"8+1 with many VFs", 4, Rules{Policy: model.Restricted}, [2]int{4, 4}, Request{8, 1}, both, false},
		{"all GPUs and all VFs", 4, Rules{Policy: model.Restricted}, [2]int{4, 4}, Request{8, 32}, both, true},
		{"8+8 with one VF per PF", 1, Rules{Policy: model.Restricted}, [2]int{4, 4}, Request{8, 8}, both, true},
		{"5+5 with one VF per PF", 1, Rules{Policy: model.Restricted}, [2]int{4, 4}, Request{5, 5}, both, true},
		{"8+8 without nodes for VFs", 8, Rules{Policy: model.Restricted, ExcludeTopology: true}, [2]int{4, 4},
			Request{8, 8}, both, true},
		{"0+3 without nodes for VFs", 8, Rules{Policy: model.Restricted, ExcludeTopology: true}, [2]int{4, 4},
			Request{0, 3}, both, true},
		{"2+2 from two nodes", 8, Rules{Policy: model.Restricted}, [2]int{1, 1}, Request{2, 2}, both, false},
		{"2+2 from two nodes, best effort", 8, Rules{Policy: model.BestEffort}, [2]int{1, 1},
			Request{2, 2}, both, true},
		{"2+2 from two nodes, no policy", 8, Rules{Policy: model.PolicyNone}, [2]int{1, 1}, Request{2, 2}, 0, true},
		{"8+8 with many VFs, best effort", 8, Rules{Policy: model.BestEffort}, [2]int{4, 4},
			Request{8, 8}, both, true},
		{"4+4 from two nodes", 8, Rules{Policy: model.Restricted}, [2]int{2, 2}, Request{4, 4}, both, false},
		{"4+4 where four are free", 8, Rules{Policy: model.Restricted}, [2]int{3, 4}, Request{4, 4}, 2, true},
		{"5 GPUs always need two nodes", 8, Rules{Policy: model.Restricted}, [2]int{1, 4},
			Request{5, 0}, both, true},
		{"the lower of two nodes", 8, Rules{Policy: model.Restricted}, [2]int{1, 4}, Request{1, 1}, 1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newState(presetNode(t, "A", c.vfs), c.rules)
			occupy(s, c.free[0], c.free[1])
			mask, admitted := s.Affinity(c.request)
			if admitted != c.admitted || admitted && mask != c.mask {
				t.Errorf("nodes %b, admitted %t; want %b, %t", mask, admitted, c.mask, c.admitted)
			}
		})
	}
}

// A state's counts after changes equal those of the coordinator at a request.
func TestRestrictedIsAsPredicted(t *testing.T) {
	rng := newRand(1)
	for range 5000 {
		vfs := 1 + rng.IntN(4)
		s := newState(presetNode(t, Presets()[rng.IntN(3)], vfs), Rules{
			Policy: model.Restricted, ExcludeTopology: rng.IntN(4) == 0,
		})
		scatter(s, rng, rng.Float64())
		r := Request{rng.IntN(9), rng.IntN(9)}
		if !s.Fits(r) || r.GPUs+r.VFs == 0 {
			continue
		}
		want, wantAdmitted := model.Restricted.Nodes(demand(s, GPU, r), demand(s, VF, r))
		mask, admitted := s.Affinity(r)
		if r.GPUs == 0 && s.Rules.ExcludeTopology {
			continue // no decision: the kubelet returns all nodes, which is equivalent to none
		}
		if admitted != wantAdmitted || admitted && mask != want {
			t.Fatalf("%v of %d+%d free: nodes %v, admitted %t; predicted %v, %t",
				r, s.Free(GPU), s.Free(VF), mask.Numbers(), admitted, want.Numbers(), wantAdmitted)
		}
	}
}

func demand(s *State, kind Kind, r Request) model.Demand {
	d := model.Demand{Count: r.Of(kind)}
	for i, device := range s.Node.Devices[kind] {
		var at topology.NUMANode
		if kind == GPU || !s.Rules.ExcludeTopology {
			at = topology.Node(device.NUMA)
		}
		d.All.Add(at)
		if !s.Taken(kind, i) {
			d.Free.Add(at)
		}
	}
	return d
}

func TestWhenThePluginIsAsked(t *testing.T) {
	for _, c := range []struct {
		name    string
		rules   Rules
		free    [2]int
		request Request
		asked   string // kind, available, must-include
	}{
		{"a choice on the node", Rules{Policy: model.Restricted}, [2]int{3, 4}, Request{2, 2}, "GPU 3 0, VF 8 0"},
		{"no choice of GPUs", Rules{Policy: model.Restricted}, [2]int{2, 4}, Request{2, 2}, "VF 8 0"},
		{"no policy: always", Rules{Policy: model.PolicyNone}, [2]int{1, 1}, Request{2, 2}, "GPU 2 0, VF 16 0"},
		{"VFs without nodes: always, all of them", Rules{Policy: model.Restricted, ExcludeTopology: true},
			[2]int{2, 4}, Request{2, 2}, "VF 16 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newState(presetNode(t, "A", 2), c.rules)
			occupy(s, c.free[0], c.free[1])
			var asked string
			container, outcome := s.Admit(c.request, GPU, func(_ *State, q Question, _ *rand.Rand) []int {
				if asked != "" {
					asked += ", "
				}
				asked += fmt.Sprintf("%v %d %d", q.Kind, len(q.Available), len(q.Must))
				return nil
			}, newRand(1))
			if asked != c.asked || outcome != Admitted || len(container.Devices[GPU]) != c.request.GPUs ||
				len(container.Devices[VF]) != c.request.VFs {
				t.Errorf("asked %s, want %s; outcome %v, %v", asked, c.asked, outcome, container)
			}
		})
	}
}

func TestAnswersAreFilledUp(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer []int
		want   func(got []int) bool
	}{
		{"as preferred", []int{2, 3}, func(got []int) bool { return slices.Equal(got, []int{2, 3}) }},
		{"too few", []int{3}, func(got []int) bool { return len(got) == 2 && slices.Contains(got, 3) }},
		{"too many", []int{1, 2, 3}, func(got []int) bool { return len(got) == 2 && !slices.Contains(got, 0) }},
		{"none", nil, func(got []int) bool { return len(got) == 2 }},
		{"twice", []int{1, 1}, func(got []int) bool { return len(got) == 2 && got[0] != got[1] }},
		{"of the other node", []int{6, 7}, func(got []int) bool { return len(got) == 2 && got[1] < 4 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newState(presetNode(t, "A", 1), Rules{Policy: model.Restricted})
			container, _ := s.Admit(Request{GPUs: 2},
				GPU, func(*State, Question, *rand.Rand) []int { return c.answer }, newRand(1))
			if got := container.Devices[GPU]; !c.want(got) {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestReleaseUndoesAdmission(t *testing.T) {
	s := newState(presetNode(t, "B", 3), Rules{Policy: model.BestEffort})
	rng := newRand(1)
	var containers []Container
	for range 2000 {
		if c, outcome := s.Admit(Request{rng.IntN(5), 1 + rng.IntN(4)}, Kind(rng.IntN(2)), nothing,
			rng); outcome == Admitted {
			containers = append(containers, c)
		}
		for len(containers) > 0 && rng.IntN(2) == 0 {
			i := rng.IntN(len(containers))
			s.Release(containers[i])
			containers = slices.Delete(containers, i, i+1)
		}
	}
	for _, c := range containers {
		s.Release(c)
	}
	empty := newState(s.Node, s.Rules)
	if !s.free.Equal(empty.free) {
		t.Errorf("free are %x, want %x", s.free, empty.free)
	}
}

// occupy leaves the given numbers of GPUs free on the two NUMA nodes.
func occupy(s *State, free0, free1 int) {
	left := [2]int{free0, free1}
	for i, d := range s.Node.Devices[GPU] {
		if left[d.NUMA]--; left[d.NUMA] < 0 {
			s.Take(Container{Devices: [2][]int{GPU: {i}}})
		}
	}
}

// nothing has no preference.
func nothing(*State, Question, *rand.Rand) []int { return nil }
