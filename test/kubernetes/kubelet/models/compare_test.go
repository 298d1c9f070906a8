// SPDX-License-Identifier: Apache-2.0

package models_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
)

// comparison is a node on which the models are compared with the real kubelet.
type comparison struct {
	t      *testing.T
	random *rand.Rand
	real   *real
	judge  *judge
	seen   map[string]int
}

func newComparison(t *testing.T, w *world, random *rand.Rand) *comparison {
	t.Helper()
	r := start(t, w)
	return &comparison{t: t, random: random, real: r, judge: newJudge(t, r), seen: map[string]int{}}
}

// stay makes a number of steps, and stops the node.
func (c *comparison) stay(steps int) {
	defer c.real.stop()
	for i := range steps {
		c.step(fmt.Sprint("pod-", i))
	}
}

// step lets devices fail, pods leave and one come, with plugins that answer as the verdict foretells or at
// random.
func (c *comparison) step(name string) {
	if c.random.IntN(8) == 0 {
		c.fail()
	}
	for len(c.real.admitted) > 0 && c.random.IntN(3) > 0 {
		c.remove(c.real.admitted[c.random.IntN(len(c.real.admitted))])
	}
	answer := c.randomAnswer
	if c.random.IntN(4) > 0 {
		answer = nil
	}
	c.compare(c.randomPod(name), answer)
}

func (c *comparison) remove(pod *v1.Pod) {
	c.real.remove(pod)
	c.judge.remove(pod)
}

// fail makes some devices fail, and all others healthy.
func (c *comparison) fail() {
	for i := range c.real.world.resources {
		devices := c.real.world.resources[i].Devices
		for k := range devices {
			devices[k].Healthy = true
		}
		for range c.random.IntN(2) * c.random.IntN(len(devices)+1) {
			devices[c.random.IntN(len(devices))].Healthy = false
		}
	}
	c.real.announce()
}

// compare admits a pod on the real kubelet and on all models. The plugins answer as the verdict foretells if
// answer is nil; otherwise the verdict does not know the devices of containers, and is not compared.
func (c *comparison) compare(pod *v1.Pod, answer func(a *allocation) []string) {
	r := c.real
	held := r.held()
	told, err := r.foretell(pod)
	if err != nil {
		c.t.Fatal(err)
	}
	planned, err := r.plan(pod, told)
	if err != nil {
		c.t.Fatal(err)
	}
	rejection := r.admit(pod, func(container int, a *allocation) []string {
		if plan := planned[container].of(a.Resource); answer == nil && plan != nil {
			return plan.Devices
		} else if answer == nil {
			return c.randomAnswer(a)
		}
		return answer(a)
	})
	c.count(pod, rejection)
	containers, isAdmitted := c.judge.admit(pod)
	c.report("test/model", pod, c.difference(pod, rejection, containers, isAdmitted))
	containers, isAdmitted = r.managed(pod, held)
	c.report("devicemanager", pod, c.difference(pod, rejection, containers, isAdmitted))
	if told.Chance || answer != nil {
		c.seen[unforetold]++
		return
	}
	c.seen[foretold]++
	for i := range planned {
		planned[i] = planned[i].withQuestions(r.containers[i])
	}
	c.report("verdict", pod, c.difference(pod, rejection, planned, told.Admitted))
}

// report fails the test for a difference.
func (c *comparison) report(model string, pod *v1.Pod, difference string) {
	if difference != "" {
		c.t.Fatalf("%s on %v\n%s, seed %d:%s\n%s", model, c.real.world, pod.Name, *seed, describe(pod), difference)
	}
}

// difference returns the difference between a model and the real kubelet; "" for none.
func (c *comparison) difference(
	pod *v1.Pod, rejection *node.Rejection, containers []container, isAdmitted bool,
) string {
	switch {
	case isAdmitted != (rejection == nil):
		return fmt.Sprintf("the model admits the pod: %t; the kubelet: %v", isAdmitted, rejection)
	case !isAdmitted:
		return ""
	}
	var all strings.Builder
	for i, o := range node.Containers(pod) {
		if len(node.Requests(&o)) > 0 {
			want, got := c.real.containers[i].sorted(), containers[i].sorted()
			all.WriteString(cmp.Diff(want, got, cmpopts.IgnoreUnexported(allocation{}), cmpopts.EquateEmpty()))
		}
	}
	return all.String()
}

// sorted returns a container with its allocations by resource.
func (c container) sorted() container {
	c.Allocations = slices.SortedFunc(slices.Values(c.Allocations), func(a, b allocation) int {
		return strings.Compare(a.Resource, b.Resource)
	})
	return c
}

// withQuestions completes the container of a verdict, which tells nothing of questions, and of NUMA nodes
// only if they matter.
func (c container) withQuestions(real container) container {
	if len(c.Nodes) == 0 {
		c.Nodes = real.Nodes
	}
	for i, a := range c.Allocations {
		if asked := real.of(a.Resource); asked != nil {
			c.Allocations[i] = *asked
			c.Allocations[i].Devices = a.Devices
		}
	}
	return c
}

// count counts the conditions of an admission.
func (c *comparison) count(pod *v1.Pod, rejection *node.Rejection) {
	switch {
	case rejection == nil:
		c.seen[admitted]++
	case rejection.Reason == "TopologyAffinityError":
		c.seen[misaligned]++
	default:
		c.seen[short]++
	}
	initial := map[string]bool{}
	for i, o := range c.real.containers {
		for _, a := range o.Allocations {
			switch {
			case !a.Asked:
				c.seen[notAsked]++
			case len(a.Must) > 0:
				c.seen[completed]++
			default:
				c.seen[asked]++
			}
			if a.Asked && len(a.answer) < a.Size {
				c.seen[filledUp]++
			}
			for _, id := range a.Devices {
				if initial[a.Resource+id] {
					c.seen[inherited]++
				}
				initial[a.Resource+id] = i < len(pod.Spec.InitContainers)
			}
		}
	}
}

func describe(pod *v1.Pod) string {
	var text strings.Builder
	for i, c := range node.Containers(pod) {
		fmt.Fprintf(&text, " %s (role %d) %v;", c.Name, roleOf(pod, i), node.Requests(&c))
	}
	return text.String()
}
