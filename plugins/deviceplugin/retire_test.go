// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// listed writes the list as "a b!", ! for unhealthy.
func (b *broadcast) listed() string {
	list, _, _ := b.latest()
	var words []string
	for _, d := range list.GetDevices() {
		word := d.GetID()
		if d.GetHealth() != "Healthy" {
			word += "!"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// A device that is gone stays in the list while the kubelet needs it, and for a moment in any case.
func TestGoneDevicesLeaveTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var needed atomic.Pointer[string] // nil: that cannot be read
		need := func(id string) { needed.Store(&id) }
		need("held")
		retired := 0
		s := &Server{
			retired: func() { retired++ },
			log:     slog.New(slog.DiscardHandler), devices: newBroadcast([]Device{{ID: "before"}, {ID: "held"}}),
			needed: func() (map[string]bool, error) {
				if id := needed.Load(); id != nil {
					return map[string]bool{*id: true}, nil
				}
				return nil, errors.New("the disk hangs")
			},
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = s.stayRetiring(t.Context())
		}()
		pass := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}
		want := func(list string) {
			t.Helper()
			if got := s.devices.listed(); got != list {
				t.Errorf("listed %q, want %q", got, list)
			}
		}
		all := []Device{{ID: "a", Healthy: true}, {ID: "b", Healthy: true}, {ID: "c", Healthy: true}}
		s.devices.publish(all)
		want("a b before! c held!")
		pass(2 * retireAfter)
		want("a b c held!")

		s.devices.publish(all[:1])
		want("a b! c! held!")
		pass(retireAfter / 2)
		s.devices.publish(slices.Concat(all[:1], all[2:])) // one of them is back
		want("a b! c held!")
		needed.Store(nil)
		pass(3 * retireAfter)
		want("a b! c held!")
		need("held")
		pass(retireAfter)
		want("a c held!")
		if retired != 2 {
			t.Errorf("%d reports of retired devices, want 2", retired)
		}

		_, _, sent := s.devices.latest()
		pass(retireAfter)
		select {
		case <-sent: // so that the kubelet writes down who holds what
		default:
			t.Error("the list is not sent again while a device of it is gone")
		}
		need("nothing")
		pass(retireAfter)
		want("a c")
		_, _, sent = s.devices.latest()
		pass(3 * retireAfter)
		select {
		case <-sent:
			t.Error("the list is sent again although nothing of it is gone")
		default:
		}
	})
}

// Later lists do not prolong the time for which a gone device stays in the list.
func TestGoneDevicesKeepTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroadcast([]Device{{ID: "a", Healthy: true}})
		for range 2 {
			b.publish(nil)
			if retired := b.retire(nil); len(retired) > 0 {
				t.Errorf("%v left the list too early", retired)
			}
			<-time.After(retireAfter / 2)
		}
		if retired := b.retire(nil); !slices.Equal(retired, []string{"a"}) {
			t.Errorf("%v left the list", retired)
		}
	})
}
