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
	f.end(gpus, []string{"a"}, false)
	f.begin(gpus, []string{"a"})
	if f.open() != nil {
		t.Error("an Allocate is open that has returned")
	}
	f.begin(gpus, []string{"a"})
	if f.open() == nil {
		t.Error("the next one is not open")
	}
	f.end(gpus, []string{"a"}, false)
	f.end(gpus, []string{"b"}, false) // its Allocate never comes
	now = now.Add(2 * maxOpen)
	f.begin(gpus, []string{"b"})
	if f.open() == nil {
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
			f.begin(gpus, []string{"b", "a"})
			f.begin(vfs, []string{"c"})
			go func() {
				f.end(vfs, []string{"c"}, false)
				<-time.After(wait)
				f.end(gpus, []string{"a", "b"}, false)
			}()
			began := time.Now()
			if got := f.settle(t.Context()); got != want || time.Since(began) > system.ReturnedLimit {
				t.Errorf("settled %t after %s, want %t", got, time.Since(began), want)
			}
			synctest.Wait()
			<-time.After(wait)
		})
	}
}
