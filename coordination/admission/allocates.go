// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/coordination/system"
)

// Allocates are the Allocate calls of the kubelet that are open. PodResources List must not be called
// meanwhile: the kubelet would forget the devices of such an Allocate, and assign them again (kubernetes PR
// 137534). Within an admission none is open when the kubelet asks, but the kubelet's pod workers also
// allocate, for containers without a checkpoint entry.
//
// A plugin has the number of its process, and tells over a stream which of its calls are open, with each
// start and end. A call of which the plugin asks the coordinator is open at once. The numbers of a plugin's
// calls grow. An older plugin has the number 0 and does not tell.
type Allocates struct {
	now func() time.Time

	mu      sync.Mutex
	plugins map[uint64]*pluginCalls
	ended   system.Signal
}

// pluginCalls are the open calls of a plugin.
type pluginCalls struct {
	open    map[uint64]time.Time // the last word of each
	told    uint64               // the plugin has told which of the calls up to this number are open
	streams int                  // over which the plugin tells
	left    time.Time            // the end of the last stream
}

// isOpen reports whether a call counts as open that has not ended: without a stream for maxUntold.
func (p *pluginCalls) isOpen(started, now time.Time) bool {
	return p.streams > 0 || now.Sub(started) <= maxUntold || now.Sub(p.left) <= maxUntold
}

const (
	// maxUntold is longer than the parts of an Allocate may hang: two reports, the pairs and two handouts. An
	// older plugin does not tell which of its calls are open, and one that has ended has none.
	maxUntold = 3 * time.Second
	// handover is the time for the kubelet to receive a response.
	handover = returnedLimit / 2
)

// newAllocates returns an empty set with a clock.
func newAllocates(now func() time.Time) *Allocates {
	return &Allocates{now: now, plugins: map[uint64]*pluginCalls{}}
}

// StartCall records a call of which the plugin asks the coordinator. A call that comes late may be over.
func (a *Allocates) StartCall(plugin, number uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.pluginOf(plugin); number > p.told {
		p.open[number] = a.now()
	}
}

// EndCall records that the plugin has answered a call.
func (a *Allocates) EndCall(plugin, number uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pluginOf(plugin).open, number)
	a.ended.Raise()
}

// AddStream records a stream of a plugin. With tell the plugin tells which of its calls up to a number are
// open, and leave ends the stream.
func (a *Allocates) AddStream(plugin uint64) (tell func(last uint64, open []uint64), leave func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pluginOf(plugin).streams++
	return func(last uint64, open []uint64) { a.replaceOpen(plugin, last, open) }, func() { a.endStream(plugin) }
}

// replaceOpen replaces the open calls of a plugin up to a number, unless the plugin has told later ones.
func (a *Allocates) replaceOpen(plugin, last uint64, open []uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pluginOf(plugin)
	if last < p.told {
		return
	}
	p.told = last
	maps.DeleteFunc(p.open, func(number uint64, _ time.Time) bool { return number <= last })
	for _, number := range open {
		p.open[number] = a.now()
	}
	a.ended.Raise()
}

// endStream records the end of a stream.
func (a *Allocates) endStream(plugin uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pluginOf(plugin)
	p.streams--
	p.left = a.now()
}

// pluginOf returns the calls of a plugin, also of one without any. The mutex must be held.
func (a *Allocates) pluginOf(plugin uint64) *pluginCalls {
	now := a.now()
	maps.DeleteFunc(a.plugins, func(_ uint64, p *pluginCalls) bool {
		maps.DeleteFunc(p.open, func(_ uint64, started time.Time) bool { return !p.isOpen(started, now) })
		return p.streams == 0 && len(p.open) == 0 && now.Sub(p.left) > maxUntold
	})
	if a.plugins[plugin] == nil {
		a.plugins[plugin] = &pluginCalls{open: map[uint64]time.Time{}}
	}
	return a.plugins[plugin]
}

// awaitNone waits for a short time until no call is open. It reports whether none is open. A call that is
// open when the kubelet asks is of a pod worker, and the kubelet has its response a moment after the end.
func (a *Allocates) awaitNone(ctx context.Context) bool {
	ended := a.nextEnd()
	if ended == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, returnedLimit)
	defer cancel()
	for ; ended != nil; ended = a.nextEnd() {
		select {
		case <-ended:
		case <-ctx.Done():
			return false
		}
	}
	select {
	case <-time.After(handover):
		return a.nextEnd() == nil
	case <-ctx.Done():
		return false
	}
}

// nextEnd returns a channel that is closed when a call ends, or nil if none is open.
func (a *Allocates) nextEnd() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.plugins {
		for _, started := range p.open {
			if p.isOpen(started, a.now()) {
				return a.ended.Next()
			}
		}
	}
	return nil
}
