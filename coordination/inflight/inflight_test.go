// SPDX-License-Identifier: Apache-2.0

package inflight

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-k8s/tandem/coordination/system"
)

const (
	gpus = "amd.com/gpu"
	vfs  = "nvidia.com/vf"
)

// A server that was stopped can hear that an Allocate has returned before it hears of the Allocate.
func TestReturnedBeforeItBegan(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	f := New(func() time.Time { return now })
	f.End(gpus, []string{"a"}, false)
	f.Begin(gpus, []string{"a"})
	if f.open() != nil {
		t.Error("an Allocate is open that has returned")
	}
	f.Begin(gpus, []string{"a"})
	if f.open() == nil {
		t.Error("the next one is not open")
	}
	f.End(gpus, []string{"a"}, false)
	f.End(gpus, []string{"b"}, false) // its Allocate never comes
	now = now.Add(2 * maxOpen)
	f.Begin(gpus, []string{"b"})
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
			f := New(time.Now)
			f.Begin(gpus, []string{"b", "a"})
			f.Begin(vfs, []string{"c"})
			go func() {
				f.End(vfs, []string{"c"}, false)
				<-time.After(wait)
				f.End(gpus, []string{"a", "b"}, false)
			}()
			began := time.Now()
			if got := f.Settle(t.Context()); got != want || time.Since(began) > system.ReturnedLimit {
				t.Errorf("settled %t after %s, want %t", got, time.Since(began), want)
			}
			synctest.Wait()
			<-time.After(wait)
		})
	}
}
