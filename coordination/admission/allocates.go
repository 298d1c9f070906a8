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
// Each plugin tells which of its calls are open, over a stream, with each start and end. A call that asks the
// coordinator is open before that. Plugins have the numbers of their processes, 0 for older ones, which do
// not tell; the numbers of a plugin's calls grow.
type Allocates struct {
	now func() time.Time

	mu      sync.Mutex
	plugins map[uint64]*openCalls
	ended   system.Signal
}

// openCalls are the open calls of a plugin.
type openCalls struct {
	open    map[uint64]bool
	told    uint64    // the plugin has told which of the calls up to this number are open
	streams int       // over which the plugin tells
	since   time.Time // the last start of a call, or the end of the last stream
}

// maxUntold is the time for which calls of a plugin without a stream count as open. A plugin that lives
// connects again earlier; one that has ended has no open call.
const maxUntold = time.Second

// newAllocates returns an empty set with a clock.
func newAllocates(now func() time.Time) *Allocates {
	return &Allocates{now: now, plugins: map[uint64]*openCalls{}}
}

// StartCall records a call of which the plugin asks the coordinator. A call that comes late may be over.
func (a *Allocates) StartCall(plugin, number uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pluginOf(plugin)
	p.since = a.now()
	if number > p.told {
		p.open[number] = true
	}
}

// EndCall records that the plugin has answered a call.
func (a *Allocates) EndCall(plugin, number uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pluginOf(plugin).open, number)
	a.ended.Raise()
}

// AddStream records a stream of a plugin. With tell the plugin tells which of its calls up to a number are open,
// and leave ends the stream.
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
	maps.DeleteFunc(p.open, func(number uint64, _ bool) bool { return number <= last })
	for _, number := range open {
		p.open[number] = true
	}
	a.ended.Raise()
}

// endStream records the end of a stream.
func (a *Allocates) endStream(plugin uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pluginOf(plugin)
	p.streams--
	p.since = a.now()
}

// pluginOf returns the calls of a plugin, also of one without any. The mutex must be held.
func (a *Allocates) pluginOf(plugin uint64) *openCalls {
	maps.DeleteFunc(a.plugins, func(_ uint64, p *openCalls) bool {
		return p.streams == 0 && a.now().Sub(p.since) > maxUntold
	})
	if a.plugins[plugin] == nil {
		a.plugins[plugin] = &openCalls{open: map[uint64]bool{}, since: a.now()}
	}
	return a.plugins[plugin]
}

// awaitNone waits for a short time until no call is open. It reports whether none is open.
func (a *Allocates) awaitNone(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, returnedLimit)
	defer cancel()
	for {
		ended := a.nextEnd()
		if ended == nil {
			return true
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return a.nextEnd() == nil
		}
	}
}

// nextEnd returns a channel that is closed when a call ends, or nil if none is open.
func (a *Allocates) nextEnd() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.plugins {
		if len(p.open) > 0 && (p.streams > 0 || a.now().Sub(p.since) <= maxUntold) {
			return a.ended.Next()
		}
	}
	return nil
}
