package plugin

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/cluster/verdict"
)

// step is something that happens on a node after its object was written: the kubelet decides on a pod, or one
// that held devices has ended.
type step struct {
	admit *v1.Pod
	end   types.UID // "" for an admission
}

func ends(pods []types.UID) (steps []step) {
	for _, uid := range pods {
		steps = append(steps, step{end: uid})
	}
	return steps
}

func admissions(pods []*v1.Pod) (steps []step) {
	for _, pod := range pods {
		steps = append(steps, step{admit: pod})
	}
	return steps
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
}

// admit reports whether all goes well in every order of the steps that are not done, a set of bits. It goes
// on from each state once, where equal states are seen to be equal.
func (c *courses) admit(done int, at course) bool {
	if key := at.key(done); key != "" {
		if c.visited[key] {
			return true
		}
		c.visited[key] = true
	}
	for i, s := range c.steps {
		if done>>i&1 == 1 || s.admit == c.pod && !c.ended(done) {
			continue
		}
		next, ok := c.take(s, at)
		if !ok || !c.admit(done|1<<i, next) {
			return false
		}
	}
	return true
}

// ended reports whether the steps that are done have all ends: the pod is sent after those.
func (c *courses) ended(done int) bool {
	for i, s := range c.steps {
		if s.admit == nil && done>>i&1 == 0 {
			return false
		}
	}
	return true
}

// follow reports whether all goes well in one order.
func (c *courses) follow(order []step, at course) (ok bool) {
	for _, s := range order {
		if at, ok = c.take(s, at); !ok {
			return false
		}
	}
	return true
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
func (c course) key(done int) string {
	without, with := c.without.Same(), ""
	if without == "" {
		return ""
	}
	if c.with != nil {
		with = c.with.Same()
	}
	return fmt.Sprintf("%d %q %q", done, without, with)
}
