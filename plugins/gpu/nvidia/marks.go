// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// mark says that a GPU or a MIG device is broken.
type mark struct {
	why   string
	gpu   string    // the UUID of the GPU, or of that of the MIG device
	shown time.Time // when a discovery first showed it; zero before
	told  bool      // the driver has since told that what the GPU needs changed
	deaf  bool      // it is only that the GPU cannot be watched
}

// watched are the GPUs as they answered last, and the broken ones among them. Its mutex is never held while
// NVML is asked.
type watched struct {
	mu     sync.Mutex
	known  []card
	broken map[string]mark // by the UUID of a GPU or MIG device; made with the first mark
}

// remember keeps the GPUs that answered last; nil where NVML does not answer.
func (w *watched) remember(cards []card) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known = cards
}

// cards are the GPUs that answered last.
func (w *watched) cards() []card {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.known
}

// set marks a GPU or MIG device. The mutex is held.
func (w *watched) set(uuid string, m mark) {
	if w.broken == nil {
		w.broken = map[string]mark{}
	}
	w.broken[uuid] = m
}

// unwatched marks the GPUs that cannot be watched, and no others that could not before.
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

// told notes that what a GPU needs changed, and reports whether anything was broken there.
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

// uuids are those of a GPU and its MIG devices.
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

// mark says that a GPU or MIG device is broken.
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

// outlived drops the marks of MIG devices that are no more. The mutex is held.
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

// forgive takes GPUs for healthy again, where that is wanted, of which the driver says that they need
// nothing: at once where it told of a change since the error, otherwise after a while; never before a
// discovery has shown the error, so that the kubelet gets to see it. Where it is not wanted, and with a
// driver that cannot say, they are unhealthy until the plugin starts anew, as with NVIDIA's own. What is
// broken still is returned.
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

// over reports whether what was marked can be trusted again, now that the driver says that it needs nothing.
func (m mark) over(recheck time.Duration) bool {
	return !m.deaf && !m.shown.IsZero() && (m.told || time.Since(m.shown) >= recheck)
}
