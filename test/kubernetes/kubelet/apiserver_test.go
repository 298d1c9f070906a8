// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
)

// The API server of a campaign tells of pods before the kubelet admits them. These are its faults: the
// daemons' list of pods is behind the kubelet's, or ahead of it.

// changesLate lets the API server's changes come late: within an admission, long after it, and not before the
// fault ends.
func changesLate(c *chaos) func() {
	delay := []time.Duration{
		5 * time.Millisecond, 50 * time.Millisecond, time.Second, time.Hour,
	}[c.random.IntN(4)]
	c.did("changes come %v late", delay)
	c.awaitWatched()
	before, _ := c.API.Seen()
	c.API.Delay(delay)
	c.happens = func() bool { return true } // the end waits for it
	return func() {
		c.happens = nil
		c.must(c.await("a change to come late", func() (bool, <-chan struct{}) {
			seen, wake := c.API.Seen()
			return seen.Late > before.Late, wake
		}))
		c.happened()
		c.API.Delay(0)
	}
}

// connectionsBreak breaks the daemons' connections in the middle of an admission.
func connectionsBreak(c *chaos) func() { return c.interrupt(c.API.Break) }

// changesForgotten lets the daemons' watches end since what they have seen last is too old: they have to list
// again.
func changesForgotten(c *chaos) func() { return c.interrupt(c.API.Compact) }

// interrupt ends the watches with one of the next calls of the kubelet. In every other case the pods after
// the fault find the daemons watching again.
func (c *chaos) interrupt(end func()) func() {
	c.awaitWatched()
	before, _ := c.API.Seen()
	wait, watched := c.random.IntN(8), c.random.IntN(2) == 0
	c.hook = func(call node.Call, after bool) {
		if wait--; wait == -1 {
			c.did("%s on %s, answered %t: watches end", call.Method, call.Socket, after)
			end()
		}
	}
	c.happens = func() bool { seen, _ := c.API.Seen(); return seen.Broken > before.Broken }
	return func() {
		if c.happens() {
			c.happened()
		}
		if c.happens = nil; watched {
			c.awaitWatched()
		}
	}
}

// apiServerAway lets the API server refuse all requests, until one has been.
func apiServerAway(c *chaos) func() {
	c.awaitWatched()
	before, _ := c.API.Seen()
	c.API.Away(true)
	c.API.Break()
	watched := c.random.IntN(2) == 0
	c.happens = func() bool { return true }
	return func() {
		c.happens = nil
		c.must(c.await("a request to the API server", func() (bool, <-chan struct{}) {
			seen, wake := c.API.Seen()
			return seen.Refused > before.Refused, wake
		}))
		c.happened()
		c.API.Away(false)
		if watched {
			c.awaitWatched()
		}
	}
}

// boundEarly lets the API server have pods that the kubelet is told of later, or never: they are deleted
// before.
func boundEarly(c *chaos) func() {
	var early []*v1.Pod
	for i := range 1 + c.random.IntN(4) {
		pod := c.requireSome(shapes[c.random.IntN(len(shapes))].pod(fmt.Sprint("early-", i), c.GPU))
		c.did("bind %s", pod.Name)
		c.API.Bind(pod)
		early = append(early, pod)
	}
	c.happened()
	return func() {
		for _, pod := range early {
			c.API.Delete(pod)
		}
	}
}

// awaitWatched waits until the daemon that serves watches the pods of the node.
func (c *chaos) awaitWatched() {
	c.must(c.await("a watch on pods", func() (bool, <-chan struct{}) {
		streams, wake := c.API.Streams()
		return streams > 0, wake
	}))
}

// await waits until something is so: longer than client-go leaves an API server alone that was away again and
// again.
func (c *chaos) await(what string, is func() (bool, <-chan struct{})) error {
	ctx, cancel := context.WithTimeout(c.t.Context(), 3*time.Minute)
	defer cancel()
	for {
		so, wake := is()
		if so {
			return nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
		}
	}
}

// checkEvents makes sure that the events about pods, where there is an API server to take them, are about
// pods that there were.
func (c *chaos) checkEvents() {
	c.t.Helper()
	if c.API == nil {
		return
	}
	seen, _ := c.API.Seen()
	for _, wrong := range seen.Wrong {
		c.t.Error(wrong)
	}
	c.counts["event about a pod taken"], c.counts["event about a pod refused"] = seen.Taken, seen.Denied
	c.counts["change that came late"], c.counts["watch that ended"] = seen.Late, seen.Broken
	if seen.Taken+seen.Denied == 0 && c.faults.happened[refusedAlignment] && c.counts[refusedAlignment] > 0 {
		c.t.Error("a pod was refused, and no event says so")
	}
}
