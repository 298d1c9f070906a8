// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/coordination/system"
)

// maxOpen is the maximum time of an open Allocate. No plugin takes longer: the report was lost, with the
// plugin or with a server.
const maxOpen = time.Second

// openAllocates are the open calls of the kubelet. PodResources List must not be called meanwhile: the
// kubelet would forget the devices of such an Allocate, and assign them again (kubernetes PR 137534). Within
// an admission none is open when the kubelet asks, but the kubelet's pod workers also allocate, for
// containers without a checkpoint entry.
type openAllocates struct {
	now func() time.Time

	mu    sync.Mutex
	since map[allocate]time.Time // by a device of each
	// early holds the times of reports about other Allocates: after a pause a server can receive the report
	// first.
	early map[allocate]time.Time
	ended system.Signal
}

// newOpenAllocates returns an empty set with a clock.
func newOpenAllocates(now func() time.Time) *openAllocates {
	return &openAllocates{now: now, since: map[allocate]time.Time{}, early: map[allocate]time.Time{}}
}

// begin records an Allocate until the plugin reports the return.
func (f *openAllocates) begin(resource string, ids []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expire()
	key := allocateOf(resource, ids)
	if _, returned := f.early[key]; returned {
		delete(f.early, key)
		return
	}
	f.since[key] = f.now()
}

// end records that an Allocate has returned; the Allocate may not have begun yet, and one that failed may
// never begin.
func (f *openAllocates) end(resource string, ids []string, failed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expire()
	key := allocateOf(resource, ids)
	if _, began := f.since[key]; !began && !failed {
		f.early[key] = f.now()
	}
	delete(f.since, key)
	f.ended.Raise()
}

// forget removes the Allocates of a resource: the plugin has just joined, and may have sent earlier reports
// to another server.
func (f *openAllocates) forget(resource string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for d := range f.since {
		if d.resource == resource {
			delete(f.since, d)
		}
	}
}

// settle waits for a short time until no Allocate is open. It reports whether none is open.
func (f *openAllocates) settle(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, system.ReturnedLimit)
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

// open returns a channel that is closed when an Allocate ends, or nil if none is open.
func (f *openAllocates) open() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expire()
	if len(f.since) == 0 {
		return nil
	}
	return f.ended.Next()
}

// expire removes old entries. The mutex must be held.
func (f *openAllocates) expire() {
	old := func(_ allocate, noted time.Time) bool { return f.now().Sub(noted) > maxOpen }
	maps.DeleteFunc(f.since, old)
	maps.DeleteFunc(f.early, old)
}

// allocate identifies an Allocate by the lowest of its devices.
type allocate struct{ resource, id string }

// allocateOf returns the lowest of an Allocate's devices.
func allocateOf(resource string, ids []string) allocate {
	if len(ids) == 0 {
		return allocate{resource: resource}
	}
	return allocate{resource, slices.Min(ids)}
}
