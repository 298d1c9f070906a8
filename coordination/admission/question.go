// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/pairs"
)

// Prefer chooses devices for a GetPreferredAllocation and plans the second half of the request. The reason
// has the evidence and the choice. After an Allocate during the reads, all sources are read again. If ctx is
// done, nothing changes: the plugin has answered alone, and the kubelet uses its answer. Questions take
// turns, as the kubelet asks: the observations of simultaneous questions would outdate one another, again and
// again.
func (c *Coordinator) Prefer(
	ctx context.Context, q *api.PreferRequest,
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
		mayList := c.MayList && len(q.GetMustInclude()) == 0 && !c.isJoining(before)
		o := c.reader.readQuestion(ctx, before, asked, q, mayList)
		err = c.decide(func(tx *transaction) (err error) {
			switch {
			case ctx.Err() != nil:
				return errLeft(ctx, q)
			case tx.version != before.version:
				return errMoved
			}
			ids, reason, err = tx.answerQuestion(q, o, c.Alignment)
			return err
		})
		if !errors.Is(err, errMoved) {
			return ids, reason, err
		}
	}
}

// errMoved reports an Allocate since the observation.
var errMoved = errors.New("an Allocate came during the reads")

// errLeft returns the error of a question whose plugin has answered alone.
func errLeft(ctx context.Context, q *api.PreferRequest) error {
	return fmt.Errorf("choose %d of %s: the caller no longer waits: %w", q.GetSize(), q.GetResource(), ctx.Err())
}

// awaitAnnounced waits, before the kubelet is read, for the announcement of a question's devices and, after a
// takeover, for the plugins of the earlier server: until their announcement, their devices are unhealthy.
// Returns an error if the devices of the question are not announced in time. Resources are never removed,
// therefore an announced resource stays announced.
func (c *Coordinator) awaitAnnounced(ctx context.Context, q *api.PreferRequest) error {
	ctx, cancel := context.WithTimeout(ctx, announcedLimit)
	defer cancel()
	for {
		announced, err := c.checkAnnounced(q)
		if announced == nil {
			return nil
		}
		select {
		case <-announced:
		case <-ctx.Done():
			return err
		}
	}
}

// openAdmission is the record of the container in admission. At most one is open, because the kubelet admits
// containers one after another. The record ends with a question or an Allocate for another container, an
// Allocate that failed or was refused, and a newer checkpoint.
type openAdmission struct {
	Container *recipient       `json:"container"`      // as far as known, with its devices so far
	Recorded  kubelet.Identity `json:"recorded"`       // the checkpoint at the latest call; zero if unreadable
	Plan      *plan            `json:"plan,omitempty"` // of the latest question; nil for none
	at        time.Time        // of the latest call; zero if unknown, as for the next server

	// A pairs file is requested with the VFs and complete with the GPUs, in either order: the report of the last
	// half writes the file before the kubelet gets its answer, and therefore before the container starts.
	Devices kubelet.Devices `json:"devices"`         // allocated, in the container's order
	Files   []string        `json:"files,omitempty"` // requested pairs files
	VFs     []pairs.VF      `json:"vfs,omitempty"`   // content of the files
}

// allocated returns the container if it has devices; nil otherwise.
func (a *openAdmission) allocated() *recipient {
	if a == nil || len(a.Container.Devices) == 0 {
		return nil
	}
	return a.Container
}

// progress returns the kubelet's progress with the container, by the checkpoint as read now. A container
// without devices has made none.
func (a *openAdmission) progress(now kubelet.Identity) progress {
	switch {
	case a.allocated() == nil:
		return progressComplete
	case now == kubelet.Identity{} || a.Recorded == kubelet.Identity{}:
		return progressUnknown
	case a.Recorded == now:
		return progressOpen
	default:
		return progressComplete
	}
}

// isRecent reports whether a call came soon enough after the latest call for the same container.
func (a *openAdmission) isRecent(asked time.Time) bool {
	return a != nil && asked.Sub(a.at) < FollowWindow
}

// isLate reports whether a long time has passed since the latest call; false if the time is unknown.
func (a *openAdmission) isLate(asked time.Time) bool {
	return a != nil && !a.at.IsZero() && asked.Sub(a.at) >= longPause
}

// live returns the plan, nil if there is none or if it has expired.
func (a *openAdmission) live(now time.Time) *plan {
	if a == nil || a.Plan == nil || !now.Before(a.Plan.Expires) {
		return nil
	}
	return a.Plan
}

// proves reports whether an Allocate is certainly of the container: the kubelet takes exactly the answer to
// its question, chosen of more, or the rest of the plan directly after an Allocate.
func (a *openAdmission) proves(resource string, ids []string, now time.Time) bool {
	p := a.live(now)
	if !p.isFor(resource, ids) {
		return false
	}
	return p.Resource == resource && p.FromMore || p.Resource != resource && a.isRecent(now)
}

// of returns the record for a container: with the devices that the container has of the record before, and
// the pairs files requested for these devices.
func (a *openAdmission) of(c *recipient) *openAdmission {
	if a == nil {
		return &openAdmission{Container: c, Devices: kubelet.Devices{}}
	}
	next := a.clone()
	next.Container = c
	maps.DeleteFunc(next.Devices, func(name string, ids []string) bool {
		return !device.SameSet(c.Devices[name], ids)
	})
	if len(next.Devices) == 0 {
		next.Files, next.VFs = nil, nil
	}
	return next
}

// keepFile adds a requested pairs file with its VFs, once. Returns false if the container has a file for each
// of as many resources as a node can have.
func (a *openAdmission) keepFile(file string, vfs []pairs.VF) bool {
	if slices.Contains(a.Files, file) {
		return true
	}
	if len(a.Files) >= device.MaxResources {
		return false
	}
	a.Files, a.VFs = append(a.Files, file), append(a.VFs, vfs...)
	return true
}

// clone returns a copy with maps and lists of its own.
func (a *openAdmission) clone() *openAdmission {
	if a == nil {
		return nil
	}
	next := *a
	next.Plan, next.Devices = a.Plan.clone(), maps.Clone(a.Devices)
	next.Files, next.VFs = slices.Clone(a.Files), slices.Clone(a.VFs)
	return &next
}
