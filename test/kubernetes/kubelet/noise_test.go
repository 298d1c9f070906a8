// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/plugins/health"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/rig"
)

// moved is how far a counter has moved within its limit.
type moved struct {
	by   uint64
	last time.Time
}

// noise moves counters of PFs and GPUs, but none of them above a limit: the increase of a counter that was
// not moved for longer than its window begins anew.
func (c *chaos) noise() {
	all := c.Functions()
	for range 4 {
		f := all[c.random.IntN(len(all))]
		limit := limits[c.random.IntN(len(limits))]
		if c.ill[f.Address] != nil || f.Resource != rig.VF && !isAER(limit.Counter) {
			continue
		}
		c.raise(f, limit, func(left uint64) uint64 { return 1 + c.random.Uint64N(left) })
	}
}

// allRise moves all counters of PFs and GPUs as far as their limits permit.
func allRise(c *chaos) func() {
	for _, f := range c.Functions() {
		for _, limit := range limits {
			if c.ill[f.Address] == nil && (f.Resource == rig.VF || isAER(limit.Counter)) {
				c.raise(f, limit, func(left uint64) uint64 { return left })
			}
		}
	}
	c.happened()
	return nothing
}

// raise increases a counter by a part of what its limit leaves.
func (c *chaos) raise(f *rig.Function, limit health.Rule, part func(left uint64) uint64) {
	key := noisy{f, limit.Counter}
	if c.moved[key] == nil {
		c.moved[key] = &moved{}
	}
	m := c.moved[key]
	if time.Since(m.last) > limit.Window+3*health.Default().Interval {
		m.by = 0
	}
	if left := limit.Above - m.by; left > 0 {
		by := part(left)
		c.must(f.Add(limit.Counter, by))
		m.by, m.last = m.by+by, time.Now()
		c.counts["counter moved below its limit"]++
	}
}

// noisy is a counter of a function.
type noisy struct {
	*rig.Function
	counter string
}

// limits are the limits of counters that may increase at all. Of several rules for a counter they are the
// smallest increase and the longest window.
var limits = func() (all []health.Rule) {
	for _, r := range health.Default().Rules {
		i := slices.IndexFunc(all, func(other health.Rule) bool { return other.Counter == r.Counter })
		switch {
		case r.Above == 0:
		case i < 0:
			all = append(all, r)
		default:
			all[i].Above, all[i].Window = min(all[i].Above, r.Above), max(all[i].Window, r.Window)
		}
	}
	return all
}()
