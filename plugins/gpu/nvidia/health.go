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
	// waitLimit is the duration of one wait for events, and therefore the longest delay of a stop. Waiting costs
	// nothing: the driver wakes the plugin.
	waitLimit  = time.Second
	firstPause = 100 * time.Millisecond // after NVML failed; doubled up to the time between two rechecks
)

// Watch waits for events until ctx is done: Xids, which make a GPU unhealthy, new MIG devices, the recovery
// of a GPU, the loss of a GPU or of the driver. It also rechecks broken GPUs periodically, because some
// drivers do not report a recovery, and checks the files of the CDI specifications.
func (b *Backend) Watch(ctx context.Context, changed func()) error {
	ctx, stop := context.WithCancel(ctx)
	var specs sync.WaitGroup
	defer specs.Wait()
	defer stop() // after a panic too
	specs.Go(func() { b.keepSpecs(ctx, changed) })
	listen := b.listen
	if b.config.Xids.Off() {
		listen = b.idle
	}
	pause := firstPause
	for ctx.Err() == nil {
		began := time.Now()
		if listen(ctx, changed) {
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
		if _, err := b.lib.cards(); err != nil {
			_ = b.lib.restart() // the next discovery returns the error
		}
		changed()
	}
	return nil
}

// listen handles events until a restart is necessary, because the set of responsive GPUs changed or some GPUs
// could not be watched. It returns false if the wait failed, or NVML did not answer at the last discovery.
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
	changed() // earlier changes had no event
	looked := time.Now()
	for ctx.Err() == nil && sameCards(cards, b.health.cards()) {
		if b.health.isSilent() {
			return false
		}
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

// idle takes the place of listen without health checks: GPUs that do not answer are looked at again all the
// same.
func (b *Backend) idle(ctx context.Context, changed func()) bool {
	ticker := time.NewTicker(min(waitLimit, b.machine.Recheck))
	defer ticker.Stop()
	for looked := time.Now(); !b.health.isSilent(); {
		select {
		case <-ctx.Done():
			return true
		case <-ticker.C:
		}
		if time.Since(looked) >= b.machine.Recheck && b.health.ailing() {
			looked = time.Now()
			changed()
		}
	}
	return false
}

// drain handles the remaining events of a set before the set is freed.
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

// take records an event and reports whether a new discovery is necessary.
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

// struck returns the devices of an Xid: a MIG device if the driver reports one, otherwise the whole GPU. An
// Xid without a UUID belongs to an unresponsive GPU, which a discovery finds; if all GPUs are responsive,
// struck returns all GPUs.
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

// specPause is the interval between two checks of the CDI specification files, which other software may
// remove.
const specPause = 5 * time.Second

// keepSpecs calls changed while the files of CDI specifications differ from the written ones, and when device
// nodes for containers come or go, until ctx is done.
func (b *Backend) keepSpecs(ctx context.Context, changed func()) {
	if some, _ := b.config.CDI(); !some && !b.config.PassDeviceSpecs {
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

// intact reports whether the files of CDI specifications and the device nodes are unchanged, and the files
// were written at the last look.
func (b *Backend) intact() bool {
	b.mu.Lock()
	files, behind, nodes := maps.Clone(b.files), b.behind, b.nodes
	b.mu.Unlock()
	if behind || nodes.changed() {
		return false
	}
	for file, written := range files {
		if !written.intact(file) {
			return false
		}
	}
	return true
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

// remember keeps the answers of the GPUs at the last discovery, or that NVML did not answer.
func (w *watched) remember(cards []card, err error) {
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

// cards returns the last answers of the GPUs.
func (w *watched) cards() []card {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.known
}

// set marks a GPU or MIG device. The mutex must be held.
func (w *watched) set(uuid string, m mark) {
	if w.broken == nil {
		w.broken = map[string]mark{}
	}
	w.broken[uuid] = m
}

// unwatched marks the GPUs that cannot be watched, and removes such marks from all other GPUs.
func (w *watched) unwatched(deaf map[string]error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for uuid, m := range w.broken {
		if deaf[uuid] == nil && m.deaf {
			delete(w.broken, uuid)
		}
	}
	for uuid, reason := range deaf {
		if _, known := w.broken[uuid]; !known {
			w.set(uuid, mark{why: fmt.Sprintf("it cannot be watched: %v", reason), deaf: true})
		}
	}
}

// told records a change of a GPU's recovery action, and reports whether the GPU or a MIG device had a mark.
func (w *watched) told(gpu string) (news bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.known {
		if c.uuid != gpu {
			continue
		}
		for _, uuid := range c.uuids() {
			if m, broken := w.broken[uuid]; broken {
				m.told, news = true, true
				w.broken[uuid] = m
			}
		}
	}
	return news
}

// uuids returns the UUIDs of a GPU and its MIG devices.
func (c *card) uuids() []string {
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

// mark marks a GPU or MIG device as broken.
func (w *watched) mark(uuid, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := mark{why: why}
	for _, c := range w.known {
		if slices.Contains(c.uuids(), uuid) {
			m.gpu = c.uuid
		}
	}
	w.set(uuid, m)
}

// outlived removes the marks of MIG devices that no longer exist. The mutex must be held.
func (w *watched) outlived(cards []card) {
	for i := range cards {
		c := &cards[i]
		maps.DeleteFunc(w.broken, func(uuid string, m mark) bool {
			return m.gpu == c.uuid && c.readWhole() && !slices.Contains(c.uuids(), uuid)
		})
	}
}

// ailing reports whether something is broken or does not answer.
func (w *watched) ailing() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.known {
		if c.err != nil {
			return true
		}
	}
	return len(w.broken) > 0
}

// forgive removes the marks of recovered GPUs and returns the remaining marks. With recovery enabled, a GPU
// has recovered if the driver reports that no action is needed: at once if the driver reported a change since
// the error, otherwise after a pause, and never before a discovery has shown the error to the kubelet. With
// recovery disabled, or a driver that does not report actions, GPUs stay broken until the plugin restarts, as
// with NVIDIA's own plugin.
func (w *watched) forgive(cards []card, wanted bool, recheck time.Duration) map[string]mark {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outlived(cards)
	for _, c := range cards {
		if !wanted || c.err != nil || c.needs != recoveryNone {
			continue
		}
		for _, uuid := range c.uuids() {
			if m, broken := w.broken[uuid]; broken && m.over(recheck) {
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

// over reports whether a mark has expired, for a GPU without a needed recovery action.
func (m mark) over(recheck time.Duration) bool {
	return !m.deaf && !m.shown.IsZero() && (m.told || time.Since(m.shown) >= recheck)
}
