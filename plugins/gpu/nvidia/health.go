package nvidia

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

const (
	// waitLimit is how long one wait for events lasts, and so the longest that an end of the plugin takes. Waiting costs
	// nothing: it is the driver that wakes us.
	waitLimit  = time.Second
	firstPause = 100 * time.Millisecond // after NVML failed; doubled up to the time between two rechecks
)

// mark says that a GPU or a MIG device is broken.
type mark struct {
	why   string
	shown time.Time // when a discovery first showed it; zero before
	told  bool      // the driver has since told that what the GPU needs changed
	deaf  bool      // it is only that the GPU cannot be watched
}

// Watch waits for events until ctx is done: Xids, which make a GPU unhealthy, a GPU divided anew, a GPU that recovered, a GPU or
// the driver that went away. A look at what is broken, at times, is for drivers that do not tell of a recovery.
func (b *Backend) Watch(ctx context.Context, changed func()) error {
	if b.config.xids.off() {
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
		// Either a GPU or the driver is gone. Discovering says which, and entering NVML anew finds a driver that is back.
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

// listen hands on events until it is time to listen anew, since other GPUs answer than before, or some could not be watched.
// It reports false when waiting failed.
func (b *Backend) listen(ctx context.Context, changed func()) bool {
	cards := b.cards()
	set, deaf, err := b.lib.events(cards)
	if err != nil {
		return false
	}
	defer set.free()
	defer b.drain(set)
	maps.DeleteFunc(deaf, func(_ string, reason error) bool { return errors.Is(reason, errTooOld) })
	b.unwatched(deaf)
	changed() // no event tells what happened before
	looked := time.Now()
	for ctx.Err() == nil && sameCards(cards, b.cards()) {
		e, err := set.wait(min(waitLimit, b.machine.Recheck))
		switch {
		case errors.Is(err, errNoEvent):
			if time.Since(looked) < b.machine.Recheck || !b.ailing() {
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

// unwatched marks the GPUs that cannot be watched, and no others that could not before.
func (b *Backend) unwatched(deaf map[string]error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for uuid, m := range b.broken {
		if deaf[uuid] == nil && m.deaf {
			delete(b.broken, uuid)
		}
	}
	for uuid, reason := range deaf {
		if _, known := b.broken[uuid]; !known {
			b.broken[uuid] = mark{why: fmt.Sprintf("it cannot be watched: %v", reason), deaf: true}
		}
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
		return b.told(e.uuid)
	case xidEvent:
		if b.config.xids.ignores(e.xid) {
			return false
		}
		for _, uuid := range b.struck(e) {
			b.mark(uuid, fmt.Sprintf("Xid %d", e.xid))
		}
		return true
	default:
		return false
	}
}

// told notes that what a GPU needs changed, and reports whether anything was broken there.
func (b *Backend) told(gpu string) (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.known {
		if c.uuid != gpu {
			continue
		}
		for _, uuid := range c.uuids() {
			if m, broken := b.broken[uuid]; broken {
				m.told, news = true, true
				b.broken[uuid] = m
			}
		}
	}
	return news
}

// uuids are those of a GPU and its MIG devices.
func (c *card) uuids() []string {
	list := []string{c.uuid}
	for _, s := range c.slices {
		list = append(list, s.uuid)
	}
	return list
}

// struck lists what an Xid is about: a MIG device where the driver tells which, and otherwise the whole GPU. An Xid of a GPU
// that has no name any more is that of a GPU that does not answer, which discovery sees; all GPUs are struck where there is none.
func (b *Backend) struck(e event) []string {
	if e.uuid == "" {
		if now, err := b.lib.cards(); err != nil || slices.ContainsFunc(now, func(c card) bool { return c.err != nil }) {
			return nil
		}
	}
	var uuids []string
	for _, c := range b.cards() {
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
	if b.config.MIGStrategy == migNone || e.gi == wholeGPU {
		return nil
	}
	for _, s := range c.slices {
		if s.err == nil && s.gi == e.gi && (e.ci == wholeGPU || s.ci == e.ci) {
			uuids = append(uuids, s.uuid)
		}
	}
	return uuids
}

func (b *Backend) mark(uuid, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.broken[uuid] = mark{why: why}
}

// ailing reports whether something is broken or does not answer.
func (b *Backend) ailing() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.known {
		if c.err != nil {
			return true
		}
	}
	return len(b.broken) > 0
}

// forgive takes GPUs for healthy again of which the driver says that they need nothing: at once where it told of a change
// since the error, otherwise after a while; never before a discovery has shown the error, so that the kubelet gets to see it. A
// driver that cannot say leaves them unhealthy until the plugin starts anew, as with NVIDIA's own. What is broken still is returned.
func (b *Backend) forgive(cards []card) map[string]mark {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range cards {
		if c.err != nil || c.needs != recoveryNone {
			continue
		}
		for _, uuid := range c.uuids() {
			if m, broken := b.broken[uuid]; broken && m.over(b.machine.Recheck) {
				delete(b.broken, uuid)
			}
		}
	}
	for uuid, m := range b.broken {
		if m.shown.IsZero() {
			m.shown = time.Now()
			b.broken[uuid] = m
		}
	}
	return maps.Clone(b.broken)
}

// over reports whether what was marked can be trusted again, now that the driver says that it needs nothing.
func (m mark) over(recheck time.Duration) bool {
	return !m.deaf && !m.shown.IsZero() && (m.told || time.Since(m.shown) >= recheck)
}
