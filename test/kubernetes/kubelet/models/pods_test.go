// SPDX-License-Identifier: Apache-2.0

package models_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
)

// randomWorld is a random layout or a recorded machine.
func randomWorld(t *testing.T, random *rand.Rand) *world {
	t.Helper()
	if random.IntN(4) == 0 {
		return recorded(t, random)
	}
	w, err := randomLayout(random).build()
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// randomPod has init containers and sidecars in any order, and app containers.
func (c *comparison) randomPod(name string) *v1.Pod {
	var init, app []v1.Container
	for i := range []int{0, 0, 1, 2, 3}[c.random.IntN(5)] {
		one := node.Container(fmt.Sprint("init-", i), c.randomRequests())
		if c.random.IntN(3) == 0 {
			one.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
		}
		init = append(init, one)
	}
	for i := range []int{1, 1, 2, 3}[c.random.IntN(4)] {
		app = append(app, node.Container(fmt.Sprint("app-", i), c.randomRequests()))
	}
	return node.Pod(name, init, app)
}

// randomRequests asks for a few devices of each resource, at times for none, nearly all or too many.
func (c *comparison) randomRequests() map[string]int {
	requests := map[string]int{}
	for _, r := range c.real.world.resources {
		switch c.random.IntN(12) {
		case 0, 1, 2:
		case 3:
			requests[r.Name] = 0
		case 4:
			requests[r.Name] = c.random.IntN(len(r.Devices) + 2)
		default:
			requests[r.Name] = 1 + c.random.IntN(2)
		}
	}
	return requests
}

// randomAnswer returns random devices of a question; one of ten answers has too few.
func (c *comparison) randomAnswer(a *allocation) []string {
	isHeld := func(id string) bool { return slices.Contains(a.Must, id) }
	free := slices.DeleteFunc(slices.Clone(a.Available), isHeld)
	c.random.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	answer := slices.Concat(a.Must, free)[:a.Size]
	if c.random.IntN(10) == 0 {
		answer = answer[:c.random.IntN(len(answer)+1)]
	}
	return answer
}
