// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-k8s/tandem/coordination/system"
)

// A server that was stopped can hear that an Allocate has returned before it hears of the Allocate.
func TestReturnedBeforeItBegan(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	f := newOpenAllocates(func() time.Time { return now })
	f.endAllocate(gpus, []string{"a"}, false)
	f.addAllocate(gpus, []string{"a"})
	if f.nextEnd() != nil {
		t.Error("an Allocate is open that has returned")
	}
	f.addAllocate(gpus, []string{"a"})
	if f.nextEnd() == nil {
		t.Error("the next one is not open")
	}
	f.endAllocate(gpus, []string{"a"}, false)
	f.endAllocate(gpus, []string{"b"}, false) // its Allocate never comes
	now = now.Add(2 * maxOpen)
	f.addAllocate(gpus, []string{"b"})
	if f.nextEnd() == nil {
		t.Error("one that begins long after is not open")
	}
}

// A look waits a moment for the word that an Allocate has returned.
func TestLookWaitsForAnAllocateToReturn(t *testing.T) {
	t.Parallel()
	for wait, want := range map[time.Duration]bool{
		system.ReturnedLimit / 2: true, 2 * system.ReturnedLimit: false,
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newOpenAllocates(time.Now)
			f.addAllocate(gpus, []string{"b", "a"})
			f.addAllocate(vfs, []string{"c"})
			go func() {
				f.endAllocate(vfs, []string{"c"}, false)
				<-time.After(wait)
				f.endAllocate(gpus, []string{"a", "b"}, false)
			}()
			began := time.Now()
			if got := f.awaitNone(t.Context()); got != want || time.Since(began) > system.ReturnedLimit {
				t.Errorf("settled %t after %s, want %t", got, time.Since(began), want)
			}
			synctest.Wait()
			<-time.After(wait)
		})
	}
}
