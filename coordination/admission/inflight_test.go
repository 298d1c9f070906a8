package admission

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// The kubelet forgets the devices of an Allocate that is open while PodResources is listed: then it is not.
func TestNoListWhileAnAllocateIsOpen(t *testing.T) {
	t.Parallel()
	a := newAdmission(t, "oci-mi300x-derived", 4, false, 1)
	a.keepCheckpoint()
	look, looks := a.coordinator.Look, 0
	a.coordinator.Look = func(ctx context.Context) (kubelet.View, error) {
		looks++
		return look(ctx)
	}
	a.add("pod")
	a.coordinator.inFlight.begin(vfs, []string{"0000:0c:00.1"}) // of a pod worker
	a.ask(gpus, 0, 1)
	if looks > 0 {
		t.Error("PodResources was listed")
	}
	a.coordinator.inFlight.end(vfs, []string{"0000:0c:00.1"})
	a.ask(gpus, 0, 1)
	if looks != 1 {
		t.Errorf("%d looks after the Allocate has returned", looks)
	}
	a.coordinator.inFlight.begin(vfs, []string{"0000:0c:00.1"}) // the plugin's word goes to another server
	a.announce()
	a.ask(gpus, 0, 1)
	if looks != 2 {
		t.Errorf("%d looks after the plugin has joined anew", looks)
	}
	a.coordinator.inFlight.begin(vfs, []string{"0000:0c:00.1"}) // its plugin dies
	a.now = a.now.Add(2 * maxAllocate)
	a.ask(gpus, 0, 1)
	if looks != 3 {
		t.Errorf("%d looks long after an Allocate that never returned", looks)
	}
}

// A server that was stopped can hear that an Allocate has returned before it hears of the Allocate.
func TestReturnedBeforeItBegan(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	f := newInFlight(func() time.Time { return now })
	f.end(gpus, []string{"a"})
	f.begin(gpus, []string{"a"})
	if f.open() != nil {
		t.Error("an Allocate is open that has returned")
	}
	f.begin(gpus, []string{"a"})
	if f.open() == nil {
		t.Error("the next one is not open")
	}
	f.end(gpus, []string{"a"})
	f.end(gpus, []string{"b"}) // its Allocate never comes
	now = now.Add(2 * maxAllocate)
	f.begin(gpus, []string{"b"})
	if f.open() == nil {
		t.Error("one that begins long after is not open")
	}
}

// A look waits a moment for the word that an Allocate has returned.
func TestLookWaitsForAnAllocateToReturn(t *testing.T) {
	t.Parallel()
	for wait, want := range map[time.Duration]bool{returnTimeout / 2: true, 2 * returnTimeout: false} {
		synctest.Test(t, func(t *testing.T) {
			f := newInFlight(time.Now)
			f.begin(gpus, []string{"b", "a"})
			f.begin(vfs, []string{"c"})
			go func() {
				f.end(vfs, []string{"c"})
				<-time.After(wait)
				f.end(gpus, []string{"a", "b"})
			}()
			began := time.Now()
			if got := f.settle(t.Context()); got != want || time.Since(began) > returnTimeout {
				t.Errorf("settled %t after %s, want %t", got, time.Since(began), want)
			}
			synctest.Wait()
			<-time.After(wait)
		})
	}
}
