// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/cluster/verdict"
)

// step is something that happens on a node after its object was written: the kubelet decides on a pod, or one
// that held devices has ended.
type step struct {
	admit *v1.Pod
	end   types.UID // "" for an admission
	wish  string    // of an admission; "" for one of its own
}

// course is what a node holds after some steps: without the pod that is asked about and, from when that has
// come, with it.
type course struct {
	without, with *verdict.State // with is nil before
}

// courses are the orders in which steps may come that have the pod's admission among them.
type courses struct {
	pod     *v1.Pod
	steps   []step
	visited map[string]bool
	left    int // admissions that may be tried yet
}

// Bounds of a search. Admissions are what takes time: up to 100 µs each on a node of some manyDevices, and
// the longer the more devices a node has: 40 ms at the maximum of an object.
const (
	maxAdmissions = 400
	minAdmissions = 16
	manyDevices   = 256
	maxSteps      = 63 // bits
)

// admissions is how many admissions a search may try on a node with so many devices.
func admissions(devices int) int {
	return max(minAdmissions, maxAdmissions*manyDevices/max(manyDevices, devices))
}

// newCourses are those of a node to which pods are on their way.
func newCourses(s *seen, pod *v1.Pod) *courses {
	if s.since == nil {
		s.since = stepsOf(s.gone, s.inFlight)
	}
	return &courses{
		pod: pod, steps: append(slices.Clip(s.since), step{admit: pod}), visited: map[string]bool{},
		left: admissions(s.node.Devices()),
	}
}

// wellFrom reports whether all goes well in every order of the steps. It says no if they are too many to be
// told apart.
func (c *courses) wellFrom(before *verdict.State) bool {
	return len(c.steps) <= maxSteps && c.admit(0, course{without: before})
}

func stepsOf(gone []types.UID, inFlight []*v1.Pod) (steps []step) {
	for _, uid := range gone {
		steps = append(steps, step{end: uid})
	}
	for _, pod := range inFlight {
		wish, err := wishOf(pod)
		if err != nil {
			wish = "" // equal to none
		}
		steps = append(steps, step{admit: pod, wish: wish})
	}
	return steps
}

// admit reports whether all goes well in every order of the steps that are not done, a set of bits. It goes
// on from each state once, where equal states are seen to be equal. Where there are too many orders it says
// no.
func (c *courses) admit(done uint64, at course) bool {
	if key := at.key(done); key != "" {
		if c.visited[key] {
			return true
		}
		c.visited[key] = true
	}
	for i, s := range c.steps {
		if !c.comes(i, done) {
			continue
		}
		if s.admit != nil {
			c.left--
		}
		if c.left < 0 {
			return false
		}
		next, ok := c.take(s, at)
		if !ok || !c.admit(done|1<<i, next) {
			return false
		}
	}
	return true
}

// comes reports whether a step can be the next one. The pod is sent after all ends. Of pods with equal wishes
// it makes no difference which comes first.
func (c *courses) comes(i int, done uint64) bool {
	isDone := func(k int) bool { return done>>k&1 == 1 }
	s := c.steps[i]
	for k, other := range c.steps {
		sent := s.admit == c.pod && other.admit == nil
		equal := k < i && s.wish != "" && s.wish == other.wish
		if (sent || equal) && !isDone(k) {
			return false
		}
	}
	return !isDone(i)
}

// take goes one step. All goes well unless the pod is refused, or another is that is not without it.
func (c *courses) take(s step, at course) (next course, ok bool) {
	next.without = at.without.Clone()
	if at.with != nil {
		next.with = at.with.Clone()
	}
	switch s.admit {
	case nil:
		next.without.Remove(s.end)
		if next.with != nil {
			next.with.Remove(s.end)
		}
	case c.pod:
		next.with = at.without.Clone()
		return next, next.with.Admit(c.pod).Admitted
	default:
		expected := next.without.Admit(s.admit).Admitted
		if next.with != nil {
			return next, next.with.Admit(s.admit).Admitted || !expected
		}
	}
	return next, true
}

// key is "" where equal states cannot be told.
func (c course) key(done uint64) string {
	without, with := c.without.Same(), ""
	if without == "" {
		return ""
	}
	if c.with != nil {
		with = c.with.Same()
	}
	return fmt.Sprintf("%d %q %q", done, without, with)
}
