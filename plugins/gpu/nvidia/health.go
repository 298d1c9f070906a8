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
)

const (
	// waitLimit is the duration of one wait for events, and therefore the longest delay of a stop. Waiting costs
	// nothing: the driver wakes the plugin.
	waitLimit  = time.Second
	firstPause = 100 * time.Millisecond // after NVML failed; doubled up to the time between two rechecks
)

// specPause is the interval between two checks of the CDI specification files, which other software may
// remove, and of the device nodes for containers.
const specPause = 5 * time.Second

// Watch waits for events until ctx is done: Xids, which make a GPU unhealthy, new MIG devices, the recovery
// of a GPU, the loss of a GPU or of the driver. It also rechecks broken GPUs periodically, because some
// drivers do not report a recovery, and checks the files of the CDI specifications.
func (b *Backend) Watch(ctx context.Context, changed func()) error {
	pause := firstPause
	for ctx.Err() == nil {
		began := time.Now()
		if b.listenUntilChange(ctx, changed) {
			continue
		}
		if time.Since(began) > 2*waitLimit {
			pause = firstPause
		}
		// A GPU or the driver is gone. The discovery finds the GPU; the restart of NVML finds a reloaded driver.
		changed()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
			pause = min(2*pause, b.machine.Recheck)
		}
		if _, err := b.lib.readCards(); err != nil {
			_ = b.lib.restart() // the next discovery returns the error
		}
		changed()
	}
	return nil
}

// listenUntilChange handles events until a restart is necessary, because the set of responsive GPUs changed
// or some GPUs could not be watched. It returns false if the wait failed, or NVML did not answer at the last
// discovery. Without health checks there are no events, but GPUs that do not answer are looked at again all
// the same.
func (b *Backend) listenUntilChange(ctx context.Context, changed func()) bool {
	wait := func(limit time.Duration) (event, error) {
		select {
		case <-ctx.Done():
		case <-time.After(limit):
		}
		return event{}, errNoEvent
	}
	cards := b.health.lastCards()
	var deaf map[string]error
	if !b.config.Xids.Off() {
		set, unwatched, err := b.lib.events(cards)
		if err != nil {
			return false
		}
		defer set.free()
		defer b.drainEvents(set)
		wait, deaf = set.wait, unwatched
		maps.DeleteFunc(deaf, func(_ string, reason error) bool { return errors.Is(reason, errTooOld) })
	}
	b.health.markUnwatched(deaf)
	changed() // earlier changes had no event
	looked, checked := time.Now(), time.Now()
	for ctx.Err() == nil && sameCards(cards, b.health.lastCards()) {
		if b.health.isSilent() {
			return false
		}
		e, err := wait(min(waitLimit, b.machine.Recheck))
		if time.Since(checked) >= min(specPause, b.machine.Recheck) {
			checked = time.Now()
			if !b.areIntact() {
				changed()
			}
		}
		switch {
		case errors.Is(err, errNoEvent):
			if time.Since(looked) < b.machine.Recheck || !b.health.isAiling() {
				continue
			}
			looked = time.Now()
			changed()
			if len(deaf) > 0 {
				return true
			}
		case err != nil:
			return false
		case b.takeEvent(e):
			changed()
		}
	}
	return true
}

// drainEvents handles the remaining events of a set before the set is freed.
func (b *Backend) drainEvents(set eventSet) {
	for {
		e, err := set.wait(0)
		if err != nil {
			return
		}
		b.takeEvent(e)
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

// takeEvent records an event and reports whether a new discovery is necessary.
func (b *Backend) takeEvent(e event) bool {
	switch e.kind {
	case migEvent:
		return true
	case recoveryEvent:
		return b.health.noteRecovery(e.uuid)
	case xidEvent:
		if b.config.Xids.Ignores(e.xid) {
			return false
		}
		for _, uuid := range b.struckDevices(e) {
			b.health.markBroken(uuid, fmt.Sprintf("Xid %d", e.xid))
		}
		return true
	default:
		return false
	}
}

// struckDevices returns the devices of an Xid: a MIG device if the driver reports one, otherwise the whole
// GPU. An Xid without a UUID belongs to an unresponsive GPU, which a discovery finds; if all GPUs are
// responsive, struckDevices returns all GPUs.
func (b *Backend) struckDevices(e event) []string {
	if e.uuid == "" {
		if now, err := b.lib.readCards(); err != nil ||
			slices.ContainsFunc(now, func(c card) bool { return c.err != nil }) {
			return nil
		}
	}
	var uuids []string
	for _, c := range b.health.lastCards() {
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

// areIntact reports whether the files of CDI specifications and the device nodes are unchanged, and the files
// were written at the last look.
func (b *Backend) areIntact() bool {
	b.mu.Lock()
	files, behind, nodes := maps.Clone(b.files), b.behind, b.nodes
	b.mu.Unlock()
	for node, was := range nodes.there {
		behind = behind || nodes.isThere(node) != was
	}
	for file, written := range files {
		behind = behind || !written.isIntact(file)
	}
	return !behind
}

// mark marks a GPU or a MIG device as broken.
type mark struct {
	why   string
	gpu   string    // the UUID of the GPU, or of the MIG device's GPU
	shown time.Time // time of the first discovery with the mark; zero before
	told  bool      // the driver has since reported a change of the recovery action
	deaf  bool      // the GPU only cannot be watched
}

// watched holds the last answers of the GPUs and the broken GPUs. The mutex is never held during a call to
// NVML.
type watched struct {
	mu     sync.Mutex
	known  []card
	silent bool            // NVML did not answer at the last discovery
	broken map[string]mark // by the UUID of a GPU or MIG device; made with the first mark
}

// rememberCards keeps the answers of the GPUs at the last discovery, or that NVML did not answer.
func (w *watched) rememberCards(cards []card, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known, w.silent = cards, err != nil
}

// isSilent reports whether NVML did not answer at the last discovery.
func (w *watched) isSilent() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.silent
}

// lastCards returns the last answers of the GPUs.
func (w *watched) lastCards() []card {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.known
}

// setMark marks a GPU or MIG device. The mutex must be held.
func (w *watched) setMark(uuid string, m mark) {
	if w.broken == nil {
		w.broken = map[string]mark{}
	}
	w.broken[uuid] = m
}

// markUnwatched marks the GPUs that cannot be watched, and removes such marks from all other GPUs.
func (w *watched) markUnwatched(deaf map[string]error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for uuid, m := range w.broken {
		if deaf[uuid] == nil && m.deaf {
			delete(w.broken, uuid)
		}
	}
	for uuid, reason := range deaf {
		if _, known := w.broken[uuid]; !known {
			w.setMark(uuid, mark{why: fmt.Sprintf("it cannot be watched: %v", reason), deaf: true})
		}
	}
}

// noteRecovery records a change of a GPU's recovery action, and reports whether the GPU or a MIG device had a
// mark.
func (w *watched) noteRecovery(gpu string) (news bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.known {
		if c.uuid != gpu {
			continue
		}
		for _, uuid := range c.allUUIDs() {
			if m, broken := w.broken[uuid]; broken {
				m.told, news = true, true
				w.broken[uuid] = m
			}
		}
	}
	return news
}

// allUUIDs returns the UUIDs of a GPU and its MIG devices.
func (c *card) allUUIDs() []string {
	list := []string{c.uuid}
	for _, s := range c.slices {
		list = append(list, s.uuid)
	}
	return list
}

// readWhole reports whether a GPU and all of its MIG devices answered.
func (c *card) readWhole() bool {
	return c.err == nil && !slices.ContainsFunc(c.slices, func(s slice) bool { return s.err != nil })
}

// markBroken marks a GPU or MIG device as broken.
func (w *watched) markBroken(uuid, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := mark{why: why}
	for _, c := range w.known {
		if slices.Contains(c.allUUIDs(), uuid) {
			m.gpu = c.uuid
		}
	}
	w.setMark(uuid, m)
}

// isAiling reports whether something is broken or does not answer.
func (w *watched) isAiling() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.known {
		if c.err != nil {
			return true
		}
	}
	return len(w.broken) > 0
}

// forgiveRecovered removes the marks of recovered GPUs and returns the remaining marks. With recovery
// enabled, a GPU has recovered if the driver reports that no action is needed: at once if the driver reported
// a change since the error, otherwise after a pause, and never before a discovery has shown the error to the
// kubelet. With recovery disabled, or a driver that does not report actions, GPUs stay broken until the
// plugin restarts, as with NVIDIA's own plugin.
func (w *watched) forgiveRecovered(cards []card, wanted bool, recheck time.Duration) map[string]mark {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range cards {
		maps.DeleteFunc(w.broken, func(uuid string, m mark) bool { // of MIG devices that no longer exist
			return m.gpu == c.uuid && c.readWhole() && !slices.Contains(c.allUUIDs(), uuid)
		})
		if !wanted || c.err != nil || c.needs != recoveryNone {
			continue
		}
		for _, uuid := range c.allUUIDs() {
			if m, broken := w.broken[uuid]; broken && m.isOver(recheck) {
				delete(w.broken, uuid)
			}
		}
	}
	for uuid, m := range w.broken {
		if m.shown.IsZero() {
			m.shown = time.Now()
			w.broken[uuid] = m
		}
	}
	return maps.Clone(w.broken)
}

// isOver reports whether a mark has expired, for a GPU without a needed recovery action.
func (m mark) isOver(recheck time.Duration) bool {
	return !m.deaf && !m.shown.IsZero() && (m.told || time.Since(m.shown) >= recheck)
}
