// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
)

// disturb does something with the kubelet's answers to a question for as long as the fault lasts. A kubelet
// that restarts meanwhile goes on with it.
func (c *chaos) disturb(question string, do func(context.Context) error) (end func()) {
	var asked atomic.Int32
	c.Node.Disturb(func(ctx context.Context, what string) error {
		if what != question {
			return nil
		}
		asked.Add(1)
		return do(ctx)
	})
	c.happens = func() bool { return asked.Load() > 0 }
	return func() {
		c.Node.Disturb(nil)
		if c.happens = nil; asked.Load() > 0 {
			c.happened()
		}
	}
}

// fail lets the answers to a question be errors.
func fail(question string) func(*chaos) func() {
	return func(c *chaos) func() {
		return c.disturb(question, func(context.Context) error {
			return status.Error(codes.Unavailable, "disturbed")
		})
	}
}

// slow lets the answers to a question come late: before the daemons give up, just behind that, and long
// behind.
func slow(question string) func(*chaos) func() {
	return func(c *chaos) func() {
		delay := []time.Duration{
			30 * time.Millisecond, 60 * time.Millisecond, 300 * time.Millisecond,
		}[c.random.IntN(3)]
		c.did("%s takes %v", question, delay)
		return c.disturb(question, func(ctx context.Context) error {
			timer := time.NewTimer(delay)
			defer timer.Stop()
			select {
			case <-timer.C:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}
}

// failBlind lets the kubelet lose sight of devices that pods have, and then fails to show who has what.
func failBlind(c *chaos) func() {
	found := lookInFlight(c)
	for !c.faults.happened[c.fault] {
		c.makeRoom()
		pod := c.next(nil)
		c.admitted(pod, c.AdmitBlind(pod))
	}
	c.hook = func(node.Call, bool) {}
	shown := fail(node.List)(c)
	return func() {
		shown()
		found()
	}
}

// of is for worlds with a source of intent.
func of(source string) func(*chaos) bool {
	return func(c *chaos) bool { return c.world.source == source }
}
