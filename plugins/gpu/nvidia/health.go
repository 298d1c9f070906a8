// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/plugins/gpu/nvidia/settings"
)

const (
	// waitLimit is how long one wait for events lasts, and so the longest that an end of the plugin takes.
	// Waiting costs nothing: it is the driver that wakes us.
	waitLimit  = time.Second
	firstPause = 100 * time.Millisecond // after NVML failed; doubled up to the time between two rechecks
)

// Watch waits for events until ctx is done: Xids, which make a GPU unhealthy, a GPU divided anew, a GPU
// that recovered, a GPU or the driver that went away. A look at what is broken, at times, is for drivers
// that do not tell of a recovery. Beside that it looks whether the CDI specifications are still there.
func (b *Backend) Watch(ctx context.Context, changed func()) error {
	var specs sync.WaitGroup
	defer specs.Wait()
	specs.Go(func() { b.keepSpecs(ctx, changed) })
	if b.config.Xids.Off() {
		<-ctx.Done()
		return nil
	}
	pause := firstPause
	for ctx.Err() == nil {
		began := time.Now()
		if b.listen(ctx, changed) {
			continue
		}
		if time.Since(began) > 2*waitLimit {
			pause = firstPause
		}
		// Either a GPU or the driver is gone. Discovering says which, and entering NVML anew finds a driver that is
		// back.
		changed()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
			pause = min(2*pause, b.machine.Recheck)
		}
		if _, err := b.lib.cards(); err != nil {
			_ = b.lib.restart() // its error is that of the next discovery
		}
		changed()
	}
	return nil
}

// listen hands on events until it is time to listen anew, since other GPUs answer than before, or some could
// not be watched. It reports false when waiting failed.
func (b *Backend) listen(ctx context.Context, changed func()) bool {
	cards := b.health.cards()
	set, deaf, err := b.lib.events(cards)
	if err != nil {
		return false
	}
	defer set.free()
	defer b.drain(set)
	maps.DeleteFunc(deaf, func(_ string, reason error) bool { return errors.Is(reason, errTooOld) })
	b.health.unwatched(deaf)
	changed() // no event tells what happened before
	looked := time.Now()
	for ctx.Err() == nil && sameCards(cards, b.health.cards()) {
		e, err := set.wait(min(waitLimit, b.machine.Recheck))
		switch {
		case errors.Is(err, errNoEvent):
			if time.Since(looked) < b.machine.Recheck || !b.health.ailing() {
				continue
			}
			looked = time.Now()
			changed()
			if len(deaf) > 0 {
				return true
			}
		case err != nil:
			return false
		case b.take(e):
			changed()
		}
	}
	return true
}

// drain takes the events that a set holds still: they would go with it.
func (b *Backend) drain(set eventSet) {
	for {
		e, err := set.wait(0)
		if err != nil {
			return
		}
		b.take(e)
	}
}

// sameCards reports whether the same GPUs answer.
func sameCards(before, now []card) bool {
	if len(before) != len(now) {
		return false
	}
	for i := range before {
		if before[i].uuid != now[i].uuid || (before[i].err == nil) != (now[i].err == nil) {
			return false
		}
	}
	return true
}

// take notes what an event means and reports whether to discover again.
func (b *Backend) take(e event) bool {
	switch e.kind {
	case migEvent:
		return true
	case recoveryEvent:
		return b.health.told(e.uuid)
	case xidEvent:
		if b.config.Xids.Ignores(e.xid) {
			return false
		}
		for _, uuid := range b.struck(e) {
			b.health.mark(uuid, fmt.Sprintf("Xid %d", e.xid))
		}
		return true
	default:
		return false
	}
}

// struck lists what an Xid is about: a MIG device where the driver tells which, and otherwise the whole GPU.
// An Xid of a GPU that has no name any more is that of a GPU that does not answer, which discovery sees; all
// GPUs are struck where there is none.
func (b *Backend) struck(e event) []string {
	if e.uuid == "" {
		if now, err := b.lib.cards(); err != nil ||
			slices.ContainsFunc(now, func(c card) bool { return c.err != nil }) {
			return nil
		}
	}
	var uuids []string
	for _, c := range b.health.cards() {
		if c.err != nil || (e.uuid != "" && c.uuid != e.uuid) {
			continue
		}
		if parts := b.struckParts(c, e); len(parts) > 0 {
			uuids = append(uuids, parts...)
		} else {
			uuids = append(uuids, c.uuid)
		}
	}
	return uuids
}

func (b *Backend) struckParts(c card, e event) (uuids []string) {
	if b.config.MIGStrategy == settings.MIGNone || e.gi == wholeGPU {
		return nil
	}
	for _, s := range c.slices {
		if s.err == nil && s.gi == e.gi && (e.ci == wholeGPU || s.ci == e.ci) {
			uuids = append(uuids, s.uuid)
		}
	}
	return uuids
}

// specPause is the pause between two looks at the files of CDI specifications, which anybody may remove.
const specPause = 5 * time.Second

// keepSpecs calls changed while the files of CDI specifications are not as they were written, until ctx is
// done.
func (b *Backend) keepSpecs(ctx context.Context, changed func()) {
	if some, _ := b.config.CDI(); !some {
		return
	}
	ticker := time.NewTicker(min(specPause, b.machine.Recheck))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if !b.intact() {
			changed()
		}
	}
}

// intact reports whether the files of CDI specifications are as they were written.
func (b *Backend) intact() bool {
	b.mu.Lock()
	files := maps.Clone(b.files)
	b.mu.Unlock()
	for file, written := range files {
		if !written.intact(file) {
			return false
		}
	}
	return true
}
