// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/cluster/publish/facts"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/survive"
)

const (
	// Coalesce is how long changes are collected at least.
	Coalesce = 200 * time.Millisecond
	// Jitter is by how much longer that is at most.
	Jitter = 100 * time.Millisecond
	// look is the pause between two looks at what could not be watched. Nothing is written because of it.
	look = 30 * time.Second
	// recheck is the pause between two looks at what is published, and at the kubelet's configuration, and by up
	// to a quarter longer. What somebody has deleted or changed is written again then.
	recheck = 5 * time.Minute
)

// Sink is one place where a node is published.
type Sink interface {
	// Name is what --publish calls it.
	Name() string
	// Write makes what is published there agree with the facts. It reports whether anything had to be written.
	Write(ctx context.Context, f facts.Facts) (written bool, err error)
	// Forget drops what is remembered of the place, so that the next Write looks there. It may be called while
	// Write runs.
	Forget()
}

// Config says what is published, and where.
type Config struct {
	Reader *facts.Reader
	Sinks  []Sink
	// Reach makes a connection to the API server and closes it; nil where no sink needs one.
	Reach func(context.Context) error
	// Watch sends what has changed in the kubelet's folder until ctx is done. It never blocks.
	Watch func(ctx context.Context, changed chan<- Change)
	// Published is told of each write, and of each attempt that failed.
	Published func(sink string, err error)
	Log       *slog.Logger
}

// Change is what has happened to a kubelet's folder.
type Change int

// The changes: a file is another, or the kubelet has been started.
const (
	Written Change = iota
	Started
)

// Publisher publishes a node while its plugin serves the coordination.
type Publisher struct {
	config Config
	notes  notes
}

// New makes a Publisher.
func New(config Config) *Publisher { return &Publisher{config: config} }

// Notes are sentences about the sinks that fail, by their names.
func (p *Publisher) Notes() []string { return p.notes.all() }

// Publish keeps all sinks up to date until ctx is done.
func (p *Publisher) Publish(ctx context.Context, plugins coordination.Announced) error {
	var all sync.WaitGroup
	defer all.Wait()
	newest := &cell{changed: make(chan struct{})}
	for _, sink := range p.config.Sinks {
		k := keeper{Config: &p.config, sink: sink, newest: newest, notes: &p.notes}
		all.Go(func() { k.keep(ctx) })
	}
	events := make(chan Change, 16)
	all.Go(func() {
		_ = survive.Do(p.config.Log, func() error { p.config.Watch(ctx, events); return nil }) // look remains
	})
	tick := time.NewTicker(look)
	defer tick.Stop()
	check := time.NewTimer(untilRecheck())
	defer check.Stop()
	p.collect(ctx, events) // when another plugin served before, all have to announce again
	for ctx.Err() == nil {
		announced, changed := plugins.Announced()
		enforcement, otherwise := plugins.Enforcement()
		if len(announced.Resources) > 0 { // before that nothing is known, which is not to have nothing
			read := p.config.Reader.Read(ctx, announced.Tree, resources(announced))
			read.Enforced = enforcement.Enforced()
			newest.put(read)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-otherwise:
		case <-tick.C:
		case <-check.C:
			p.config.Reader.Recheck()
			p.forget()
			check.Reset(untilRecheck())
		case event := <-events:
			p.heard(event)
		}
		p.collect(ctx, events)
	}
	return nil
}

// collect waits a moment for more changes.
func (p *Publisher) collect(ctx context.Context, events <-chan Change) {
	enough := time.After(Coalesce + rand.N(Jitter))
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-events:
			p.heard(event)
		case <-enough:
			return
		}
	}
}

func (p *Publisher) heard(event Change) {
	if event != Started {
		return
	}
	p.config.Reader.Restarted()
	p.forget() // the node can be another
}

// forget makes all sinks look at what is published.
func (p *Publisher) forget() {
	for _, sink := range p.config.Sinks {
		sink.Forget()
	}
}

// untilRecheck is the time until the next look at what is published.
func untilRecheck() time.Duration { return recheck + rand.N(recheck/4) }

// resources are those that were announced. The kubelet has a resource's devices for unhealthy while its
// plugin is away.
func resources(a admission.Announced) []facts.Resource {
	var all []facts.Resource
	for _, r := range a.Resources {
		devices := slices.SortedFunc(maps.Values(r.Devices), device.Compare)
		for i := range devices {
			devices[i].Healthy = devices[i].Healthy && r.Joined
		}
		all = append(all, facts.Resource{Name: r.Name, Kind: r.Kind, Devices: devices, Links: r.Links})
	}
	return all
}

// cell holds the newest facts.
type cell struct {
	mu      sync.Mutex
	facts   *facts.Facts  // nil before the first
	changed chan struct{} // closed on the next
}

func (c *cell) put(f facts.Facts) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.facts = &f
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *cell) get() (*facts.Facts, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.facts, c.changed
}
