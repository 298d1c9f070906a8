package admission

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// returnTimeout is how long a look waits for an Allocate that is still open. Where the kubelet asks for the next resource of a
	// container, the plugin's word that the one before has returned is on its way.
	returnTimeout = 10 * time.Millisecond
	// maxAllocate is how long an Allocate counts as open. No plugin takes longer: its word was lost, with the plugin or with a server.
	maxAllocate = time.Second
)

// inFlight are the Allocates that the kubelet waits for. PodResources must not be listed meanwhile: the kubelet would forget the devices of
// such an Allocate, and hand them out again (kubernetes PR 137534). Within an admission there is none when the kubelet asks, but its pod
// workers allocate too, for containers whose record it has lost.
type inFlight struct {
	now func() time.Time

	mu    sync.Mutex
	since map[granted]time.Time // by one of their devices
	early map[granted]time.Time // when plugins said of others that they have returned: a server that was stopped can hear that first
	ended chan struct{}         // closed when the next one ends; nil where nobody waits
}

func newInFlight(now func() time.Time) *inFlight {
	return &inFlight{now: now, since: map[granted]time.Time{}, early: map[granted]time.Time{}}
}

// begin notes an Allocate whose plugin will tell when it has returned.
func (f *inFlight) begin(resource string, ids []string) {
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

// end notes that an Allocate has returned, though it may not have begun yet.
func (f *inFlight) end(resource string, ids []string) {
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

// forget ends those of a resource: its plugin has just joined, and what it said before may have gone to another server.
func (f *inFlight) forget(resource string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for d := range f.since {
		if d.resource == resource {
			delete(f.since, d)
		}
	}
}

// settle waits until no Allocate is open, for a moment. It reports whether there is none.
func (f *inFlight) settle(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, returnTimeout)
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
func (f *inFlight) open() <-chan struct{} {
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
func (f *inFlight) expire() {
	old := func(_ granted, noted time.Time) bool { return f.now().Sub(noted) > maxAllocate }
	maps.DeleteFunc(f.since, old)
	maps.DeleteFunc(f.early, old)
}

// keyOf is the lowest of an Allocate's devices.
func keyOf(resource string, ids []string) granted {
	if len(ids) == 0 {
		return granted{resource: resource}
	}
	return granted{resource, slices.Min(ids)}
}

// Begin notes an Allocate of which the plugin will tell when it returns.
func (c *Coordinator) Begin(resource string, ids []string) { c.inFlight.begin(resource, ids) }

// Returned notes that the kubelet is about to have its answer to an Allocate.
func (c *Coordinator) Returned(resource string, ids []string) { c.inFlight.end(resource, ids) }
