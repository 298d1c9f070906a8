// Package inflight knows of the Allocates that the kubelet waits for.
package inflight

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/coordination/bounded"
)

// maxOpen is how long an Allocate counts as open. No plugin takes longer: its word was lost, with the plugin
// or with a server.
const maxOpen = time.Second

// Allocates are those that the kubelet waits for. PodResources must not be listed meanwhile: the kubelet
// would forget the devices of such an Allocate, and hand them out again (kubernetes PR 137534). Within an
// admission there is none when the kubelet asks, but its pod workers allocate too, for containers whose
// record it has lost.
type Allocates struct {
	now func() time.Time

	mu    sync.Mutex
	since map[allocate]time.Time // by one of their devices
	// when plugins said of others that they have returned: a server that was stopped can hear that first
	early map[allocate]time.Time
	ended chan struct{} // closed when the next one ends; nil where nobody waits
}

// New is none, by a clock.
func New(now func() time.Time) *Allocates {
	return &Allocates{now: now, since: map[allocate]time.Time{}, early: map[allocate]time.Time{}}
}

// Begin notes an Allocate whose plugin will tell when it has returned.
func (f *Allocates) Begin(resource string, ids []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expire()
	key := keyOf(resource, ids)
	if _, returned := f.early[key]; returned {
		delete(f.early, key)
		return
	}
	f.since[key] = f.now()
}

// End notes that an Allocate has returned, though it may not have begun yet.
func (f *Allocates) End(resource string, ids []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expire()
	key := keyOf(resource, ids)
	if _, began := f.since[key]; !began {
		f.early[key] = f.now()
	}
	delete(f.since, key)
	if f.ended != nil {
		close(f.ended)
		f.ended = nil
	}
}

// Forget ends those of a resource: its plugin has just joined, and what it said before may have gone to
// another server.
func (f *Allocates) Forget(resource string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for d := range f.since {
		if d.resource == resource {
			delete(f.since, d)
		}
	}
}

// Settle waits until no Allocate is open, for a moment. It reports whether there is none.
func (f *Allocates) Settle(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, bounded.Returned)
	defer cancel()
	for {
		ended := f.open()
		if ended == nil {
			return true
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return f.open() == nil
		}
	}
}

// open returns a channel that is closed when an Allocate ends, nil where none is open.
func (f *Allocates) open() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expire()
	if len(f.since) == 0 {
		return nil
	}
	if f.ended == nil {
		f.ended = make(chan struct{})
	}
	return f.ended
}

// expire forgets what is too long ago. The mutex is held.
func (f *Allocates) expire() {
	old := func(_ allocate, noted time.Time) bool { return f.now().Sub(noted) > maxOpen }
	maps.DeleteFunc(f.since, old)
	maps.DeleteFunc(f.early, old)
}

// allocate is one, by the lowest of its devices.
type allocate struct{ resource, id string }

// keyOf is the lowest of an Allocate's devices.
func keyOf(resource string, ids []string) allocate {
	if len(ids) == 0 {
		return allocate{resource: resource}
	}
	return allocate{resource, slices.Min(ids)}
}
