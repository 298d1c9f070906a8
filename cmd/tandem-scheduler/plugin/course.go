// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination/verdict"
)

// step is an event on a node after its object was written: the admission of a pod by the kubelet, or the end
// of a pod that held devices.
type step struct {
	admit   *v1.Pod
	end     types.UID // "" for an admission
	request request   // of an admission; "" for a pod with a request of its own
}

// course is the state of a node after some steps, without the pod in question and, after its admission, with
// the pod.
type course struct {
	without, with *verdict.State // with is nil before
}

// courses are the possible orders of steps, among them the pod's admission.
type courses struct {
	pod     *v1.Pod
	steps   []step
	visited map[string]bool
	left    int // admissions left to try
}

// Bounds of a search. Admissions dominate the time: up to 100 µs each on a node of about manyDevices devices,
// and longer with more devices: 40 ms at the maximum of an object.
const (
	maxAdmissions = 400
	minAdmissions = 16
	manyDevices   = 256
	maxSteps      = 63 // bits
)

// admissions returns the number of admissions that a search may try on a node with the given number of
// devices.
func admissions(devices int) int {
	return max(minAdmissions, maxAdmissions*manyDevices/max(manyDevices, devices))
}

// newCourses returns the courses of a node with the given number of devices, from the steps since its object
// was written and the admission of a pod.
func newCourses(since []step, pod *v1.Pod, devices int) *courses {
	return &courses{
		pod: pod, steps: append(slices.Clip(since), step{admit: pod}), visited: map[string]bool{},
		left: admissions(devices),
	}
}

// wellFrom reports whether every order of the steps succeeds. It returns false if there are too many steps.
func (c *courses) wellFrom(before *verdict.State) bool {
	return len(c.steps) <= maxSteps && c.admit(0, course{without: before})
}

func stepsOf(gone []types.UID, inFlight []*v1.Pod) (steps []step) {
	for _, uid := range gone {
		steps = append(steps, step{end: uid})
	}
	for _, pod := range inFlight {
		request, err := hashRequest(pod)
		if err != nil {
			request = "" // equal to none
		}
		steps = append(steps, step{admit: pod, request: request})
	}
	return steps
}

// admit reports whether every order of the steps outside the bit set done succeeds. It continues only once
// from equal states, as far as equality can be determined. It returns false if there are too many orders.
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

// comes reports whether a step can be the next one. The pod comes after all ends. For pods with equal
// requests only one order is tried.
func (c *courses) comes(i int, done uint64) bool {
	isDone := func(k int) bool { return done>>k&1 == 1 }
	s := c.steps[i]
	for k, other := range c.steps {
		sent := s.admit == c.pod && other.admit == nil
		equal := k < i && s.request != "" && s.request == other.request
		if (sent || equal) && !isDone(k) {
			return false
		}
	}
	return !isDone(i)
}

// take performs one step. It fails if the pod is refused, or if another pod is refused only because of the
// pod.
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

// key returns a key of the state, or "" if equal states cannot be recognized.
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
