package nvidia

import (
	"fmt"
	"maps"
	"slices"
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

// readWhole reports whether a GPU and all of its MIG devices answered.
func (c *card) readWhole() bool {
	return c.err == nil && !slices.ContainsFunc(c.slices, func(s slice) bool { return s.err != nil })
}

func (b *Backend) mark(uuid, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := mark{why: why}
	for _, c := range b.known {
		if slices.Contains(c.uuids(), uuid) {
			m.gpu = c.uuid
		}
	}
	b.broken[uuid] = m
}

// outlived drops the marks of MIG devices that are no more. The mutex is held.
func (b *Backend) outlived(cards []card) {
	for i := range cards {
		c := &cards[i]
		maps.DeleteFunc(b.broken, func(uuid string, m mark) bool {
			return m.gpu == c.uuid && c.readWhole() && !slices.Contains(c.uuids(), uuid)
		})
	}
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

// forgive takes GPUs for healthy again, where that is wanted, of which the driver says that they need
// nothing: at once where it told of a change since the error, otherwise after a while; never before a
// discovery has shown the error, so that the kubelet gets to see it. Where it is not wanted, and with a
// driver that cannot say, they are unhealthy until the plugin starts anew, as with NVIDIA's own. What is
// broken still is returned.
func (b *Backend) forgive(cards []card) map[string]mark {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.outlived(cards)
	for _, c := range cards {
		if !b.config.XidRecovery || c.err != nil || c.needs != recoveryNone {
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
