// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

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
