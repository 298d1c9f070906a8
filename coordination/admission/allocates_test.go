// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"
	"testing/synctest"
	"time"
)

// A look waits a moment for the word that an Allocate has returned.
func TestLookWaitsForAnAllocateToReturn(t *testing.T) {
	t.Parallel()
	for wait, want := range map[time.Duration]bool{
		returnedLimit / 2: true, 2 * returnedLimit: false,
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newOpenAllocates(time.Now)
			f.addAllocate(gpus, []string{"b", "a"}, false)
			f.addAllocate(vfs, []string{"c"}, false)
			go func() {
				f.endAllocate(vfs, []string{"c"})
				<-time.After(wait)
				f.endAllocate(gpus, []string{"a", "b"})
			}()
			began := time.Now()
			if got := f.awaitNone(t.Context()); got != want || time.Since(began) > returnedLimit {
				t.Errorf("settled %t after %s, want %t", got, time.Since(began), want)
			}
			synctest.Wait()
			<-time.After(wait)
		})
	}
}

// An Allocate is open while its plugin may hang, and no longer.
func TestAllocateStaysOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newOpenAllocates(time.Now)
		f.addAllocate(gpus, []string{"a"}, false)
		<-time.After(maxOpen)
		if f.nextEnd() == nil {
			t.Error("an Allocate that hangs has ended")
		}
		<-time.After(time.Nanosecond)
		if f.nextEnd() != nil {
			t.Error("an Allocate of a plugin that has died is open for ever")
		}
	})
}
