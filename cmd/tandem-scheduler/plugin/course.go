package plugin

import (
	"fmt"
	"slices"

	"github.com/tandem-k8s/tandem/cluster/verdict"
)

// step is something that may have happened on the node since its object was written: a pod that was on its way
// was admitted, or one has ended.
type step func(*verdict.State)

// most steps are tried in every order, which are 2^steps states or a few times as many.
const mostSteps = 8

// courses are what the node may hold where pods have ended since the object was written: those on their way may
// have been admitted before that, and then have other devices than they would get now. There are none where
// nobody has ended.
func (s *seen) courses() []*verdict.State {
	if len(s.gone) == 0 || s.possible != nil {
		return s.possible
	}
	var admissions, ends []step
	for _, p := range byCreation(s.inFlight) {
		admissions = append(admissions, func(on *verdict.State) { on.Admit(p) })
	}
	for _, uid := range s.gone {
		ends = append(ends, func(on *verdict.State) { on.Remove(uid) })
	}
	steps := slices.Concat(admissions, ends)
	if len(steps) > mostSteps || s.before.Same() == "" {
		last := s.before.Clone()
		for _, do := range steps {
			do(last)
		}
		s.possible = []*verdict.State{last}
		return s.possible
	}
	e := exploration{steps: steps, visited: map[string]bool{}}
	e.visit(0, s.before)
	s.possible = e.ends
	return s.possible
}

// exploration goes through steps in every order, and through each state once.
type exploration struct {
	steps   []step
	visited map[string]bool
	ends    []*verdict.State
}

// visit goes on from a state after some of the steps, a set of bits.
func (e *exploration) visit(done int, on *verdict.State) {
	key := fmt.Sprint(done, on.Same())
	if e.visited[key] {
		return
	}
	e.visited[key] = true
	if done == 1<<len(e.steps)-1 {
		e.ends = append(e.ends, on)
		return
	}
	for i, do := range e.steps {
		if done>>i&1 == 0 {
			next := on.Clone()
			do(next)
			e.visit(done|1<<i, next)
		}
	}
}
