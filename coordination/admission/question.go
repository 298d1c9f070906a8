// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/system"
)

// Prefer chooses devices for a GetPreferredAllocation and plans the second half of the request. The reason
// has the evidence and the choice. After an Allocate during the reads, all sources are read again. If ctx is
// done, nothing changes: the plugin has answered alone, and the kubelet uses its answer.
func (c *Coordinator) Prefer(
	ctx context.Context, resource string, available, mustInclude []string, size int,
) (ids []string, reason string, err error) {
	return c.prefer(ctx, asking.Question{
		Resource: resource, Available: available, MustInclude: mustInclude, Size: size,
	})
}

// errMoved reports a state newer than the observation.
var errMoved = errors.New("the state changed during the decision")

// prefer reads, decides and commits, again after an Allocate meanwhile. Questions take turns, as the kubelet
// asks: the observations of simultaneous questions would outdate one another, again and again.
func (c *Coordinator) prefer(
	ctx context.Context, q asking.Question,
) (ids []string, reason string, err error) {
	if err := c.awaitAnnounced(ctx, q); err != nil {
		return nil, "", err
	}
	asked := c.now() // before List, which may wait for the kubelet's limiter
	if c.turn.Acquire(ctx, 1) != nil {
		return nil, "", errLeft(ctx, q)
	}
	defer c.turn.Release(1)
	for {
		before := c.current()
		o := c.reader.readQuestion(ctx, before, asked, q)
		err = c.decide(func(tx *transaction) (err error) {
			switch {
			case ctx.Err() != nil:
				return errLeft(ctx, q)
			case tx.version != before.version:
				return errMoved
			}
			ids, reason, err = tx.answer(q, o)
			return err
		})
		if !errors.Is(err, errMoved) {
			return ids, reason, err
		}
	}
}

// errLeft returns the error of a question whose plugin has answered alone.
func errLeft(ctx context.Context, q asking.Question) error {
	return fmt.Errorf("choose %d of %s: the caller no longer waits: %w", q.Size, q.Resource, ctx.Err())
}

// awaitAnnounced waits, before the kubelet is read, for the announcement of a question's devices and, after a
// takeover, for the plugins of the earlier server: until their announcement, their devices are unhealthy.
// Returns an error if the devices of the question are not announced in time. Resources are never removed,
// therefore an announced resource stays announced.
func (c *Coordinator) awaitAnnounced(ctx context.Context, q asking.Question) error {
	announced, err := c.checkAnnounced(q)
	if announced == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, system.AnnouncedLimit)
	defer cancel()
	for announced != nil {
		select {
		case <-announced:
			announced, err = c.checkAnnounced(q)
		case <-ctx.Done():
			return err
		}
	}
	return nil
}
