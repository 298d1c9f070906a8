// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/bounded"
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
var errMoved = errors.New("something was asked or allocated meanwhile")

// prefer reads, decides and commits, again after a change of the state meanwhile.
func (c *Coordinator) prefer(
	ctx context.Context, q asking.Question,
) (ids []string, reason string, err error) {
	if err := c.awaitAnnounced(ctx, q); err != nil {
		return nil, "", err
	}
	c.awaitRestored(ctx)
	asked := c.now() // before List, which may wait for the kubelet's limiter
	for {
		before := c.current()
		o := c.reader.readQuestion(ctx, before, asked, q)
		err = c.decide(func(tx *transaction) (err error) {
			switch {
			case ctx.Err() != nil:
				return fmt.Errorf("choose %d of %s: nobody waits any more: %w", q.Size, q.Resource, ctx.Err())
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

// awaitAnnounced waits for the announcement of a question's devices, or returns an error, before the kubelet
// is read. Resources are never removed, therefore an announced resource stays announced.
func (c *Coordinator) awaitAnnounced(ctx context.Context, q asking.Question) error {
	announced, err := c.checkAnnounced(q)
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, bounded.Announced)
	defer cancel()
	for err != nil {
		select {
		case <-announced:
			announced, err = c.checkAnnounced(q)
		case <-ctx.Done():
			return err
		}
	}
	return nil
}

// joinTime is the time after a takeover in which a question waits for the plugins that the earlier server
// had.
const joinTime = time.Second

// awaitRestored waits, after a takeover, until all plugins of the earlier server have announced their
// devices: the devices of the other half would count as unhealthy. A plugin that does not come in time delays
// no question later.
func (c *Coordinator) awaitRestored(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, bounded.Announced)
	defer cancel()
	for c.now().Sub(c.began) < joinTime && ctx.Err() == nil {
		var announced <-chan struct{}
		c.locked(func() { announced = c.nextAnnouncement() })
		if !c.current().resources.Restored() {
			return
		}
		select {
		case <-announced:
		case <-ctx.Done():
		}
	}
}
