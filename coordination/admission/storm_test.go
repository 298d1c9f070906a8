// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/history"
	"github.com/tandem-k8s/tandem/test/model"
)

// Chances of faults during a storm, for each call or step.
const (
	chanceOfCallFault   = 0.15
	chanceOfReadFault   = 0.1
	chanceOfCrash       = 0.05
	chanceOfSave        = 0.3
	chanceOfKubeletStop = 0.05
)

// storm is a simulation: storms, with faults of every call, alternate with calms without a fault. Every
// random number depends on the seed alone.
type storm struct {
	*judge
	faults, reads *rand.Rand
	raging        bool
	saved         []byte // state in the coordinator's file
	faulted       int    // number of faults
	admitted      int
	steps         int
	most          int // admissions of the simulation
	questions     int // of the kubelet
}

// newStorm returns a simulation in which every source can fail.
func newStorm(t *testing.T, seed uint64, source intent.Source) *storm {
	s := &storm{
		judge: newJudge(t, seed, source, trouble{}), faults: rand.New(rand.NewPCG(seed, 21)),
		reads: rand.New(rand.NewPCG(seed, 22)),
	}
	read := sourcesOf(s.coordinator)
	look, get, recorded := read.look, read.get, read.recorded
	away := errors.New("away")
	read.look = func(ctx context.Context) (kubelet.View, error) {
		if s.fails("List fails") {
			return kubelet.View{}, away
		}
		return look(ctx)
	}
	read.get = func(ctx context.Context, pod kubelet.Pod) (kubelet.View, error) {
		if s.fails("Get fails") {
			return kubelet.View{}, away
		}
		return get(ctx, pod)
	}
	read.recorded = func() (kubelet.Checkpoint, error) {
		if s.fails("the checkpoint cannot be read") {
			return kubelet.Checkpoint{}, away
		}
		return recorded()
	}
	return s
}

// fails reports whether a read fails.
func (s *storm) fails(what string) bool {
	if !s.raging || s.reads.Float64() >= chanceOfReadFault {
		return false
	}
	s.note(what)
	return true
}

// strikes reports whether a fault happens.
func (s *storm) strikes(chance float64) bool { return s.raging && s.faults.Float64() < chance }

// note counts and records a fault.
func (s *storm) note(what string) {
	s.faulted++
	s.kubelet.History.Note(history.Event{Kind: history.Fault, Text: what})
}

// disturb saves the state and kills the coordinator, by chance.
func (s *storm) disturb() {
	if s.strikes(chanceOfSave) {
		s.saved = encoded(s.t, s.coordinator)
	}
	if s.strikes(chanceOfCrash) {
		s.crash()
	}
}

// crash replaces the coordinator by a coordinator that begins with the file as last written, or without a
// file.
func (s *storm) crash() {
	old := s.coordinator
	next := (&Coordinator{Config: old.Config}).startAt(old.current().tree, old.now)
	s.faulted++
	s.kubelet.History.Note(history.Event{Kind: history.Killed, Text: history.Coordinator})
	var saved savedState
	switch {
	case s.faults.IntN(4) == 0 || s.saved == nil:
		s.kubelet.History.Note(history.Event{Kind: history.Fault, Text: "the coordinator's file is lost"})
	case json.Unmarshal(s.saved, &saved) != nil:
		s.t.Fatalf("the file is damaged: %s", s.saved)
	default:
		if err := next.restore(saved, next.Log); err != nil {
			s.t.Fatal(err)
		}
	}
	next.restoreHolders()
	s.coordinator = next
	s.announce()
	s.kubelet.History.Note(history.Event{Kind: history.Started, Text: history.Coordinator})
}

// Prefer puts a question of the kubelet to the coordinator. After a fault the plugin answers alone.
func (s *storm) Prefer(p *model.Pod, c *model.Container, q model.Question) []string {
	s.questions++
	s.disturb()
	if !s.raging {
		return s.judge.Prefer(p, c, q)
	}
	if !s.strikes(chanceOfCallFault) {
		return s.answer(q)
	}
	switch s.faults.IntN(4) {
	case 0:
		s.note("a question is lost")
	case 1:
		s.note("a question is late")
		ctx, cancel := context.WithCancel(s.t.Context())
		cancel()
		_, _, _ = s.coordinator.Prefer(ctx, questionOf(q)) // the plugin does not wait for an answer
	case 2:
		s.note("an answer is lost")
		_, _, _ = s.coordinator.Prefer(s.t.Context(), questionOf(q)) // likewise
	case 3:
		s.note("a question comes twice")
		_, _, _ = s.coordinator.Prefer(s.t.Context(), questionOf(q)) // the second answer counts
		return s.answer(q)
	}
	return s.alone(q)
}

// answer returns the coordinator's answer, or the plugin's without an answer.
func (s *storm) answer(q model.Question) []string {
	ids, why, err := s.coordinator.Prefer(s.t.Context(), questionOf(q))
	if err != nil {
		return s.alone(q)
	}
	s.record(func(e *history.Event) { e.Text = why })
	return ids
}

// alone is the answer of a plugin without the coordinator: any devices.
func (s *storm) alone(q model.Question) []string {
	s.record(func(e *history.Event) { e.Alone = true })
	ids := slices.Clone(q.MustInclude)
	included := func(id string) bool { return slices.Contains(ids, id) }
	rest := slices.DeleteFunc(slices.Clone(q.Available), included)
	slices.Sort(rest)
	s.faults.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	return append(ids, rest[:q.Size-len(ids)]...)
}

// Allocate reports devices to the coordinator. After a fault the plugin passes on the devices, refused or
// not.
func (s *storm) Allocate(p *model.Pod, c *model.Container, name string, ids []string) bool {
	s.disturb()
	if !s.raging {
		return s.judge.Allocate(p, c, name, ids)
	}
	s.now = s.now.Add(FollowWindow / 4)
	if !s.strikes(chanceOfCallFault) {
		taken, err := s.coordinator.Allocated(s.t.Context(), name, ids)
		_ = s.coordinator.Returned(s.t.Context(), name, ids, taken.GetRefusal() != "")
		s.record(func(e *history.Event) { e.Alone, e.Refusal = err != nil, taken.GetRefusal() })
		return err != nil || taken.GetRefusal() == ""
	}
	s.record(func(e *history.Event) { e.Alone = true })
	switch s.faults.IntN(3) {
	case 0:
		s.note("an Allocate is lost")
	case 1:
		s.note("the answer to an Allocate is lost")
		_, _ = s.coordinator.Allocated(s.t.Context(), name, ids) // the plugin does not wait for the answer
	case 2:
		s.note("an Allocate comes twice")
		for range 2 {
			_, _ = s.coordinator.Allocated(s.t.Context(), name, ids) // likewise
		}
	}
	_ = s.coordinator.Returned(s.t.Context(), name, ids, false)
	return true
}

// step lets pods come, end and start, and the kubelet start anew.
func (s *storm) step() {
	s.steps++
	s.kubelet.Start()
	pods := s.kubelet.Pods()
	if !s.kubelet.Ready() {
		s.kubelet.Return()
	}
	switch {
	case s.strikes(chanceOfKubeletStop):
		s.note("the kubelet starts anew")
		s.kubelet.Restart()
	case len(pods) > 0 && s.random.IntN(100) < 45:
		s.kubelet.End(pods[s.random.IntN(len(pods))])
	default:
		s.admit()
	}
}

// admit admits a random pod, and reports whether the kubelet has asked for it and written its checkpoint.
func (s *storm) admit() (written bool) {
	s.now = s.now.Add(FollowWindow * time.Duration(1+s.random.IntN(2000)))
	s.blind = false
	s.admitted++
	before := s.questions
	return s.kubelet.Admit(s.kubelet.Random(), s) == nil && s.questions > before
}

// rage lets faults happen for a number of steps.
func (s *storm) rage(steps int) {
	s.kubelet.History.Note(history.Event{Kind: history.Storm, Exempt: history.InStorms})
	s.raging, s.kubelet.Trouble = true, model.Trouble{Fail: 0.1, Change: 0.1, End: 0.1}
	for range steps {
		s.step()
	}
	s.raging, s.kubelet.Trouble = false, model.Trouble{}
}

// settle waits for the kubelet's start, and admits pods until the kubelet has asked twice and written its
// checkpoint: the coordinator has then read all sources, and the checkpoint has no pod that ended while the
// kubelet was down. Until then nothing tells such a pod from one that the kubelet has not listed yet.
func (s *storm) settle() {
	for !s.kubelet.Ready() {
		s.kubelet.Return()
	}
	s.now = s.now.Add(10 * time.Second)
	written := false
	for before := s.questions; (s.questions < before+2 || !written) && s.admitted < s.most; {
		if pods := s.kubelet.Pods(); s.random.IntN(2) == 0 && len(pods) > 0 {
			s.kubelet.End(pods[s.random.IntN(len(pods))])
		}
		written = s.admit() || written
	}
	s.kubelet.History.Note(history.Event{Kind: history.Calm})
}
