// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
)

// listener is a Publisher that says what it is told of health: a word for each device of each resource.
type listener chan []bool

func (p listener) Publish(ctx context.Context, plugins Announced) error {
	for {
		newest, changed := plugins.Announced()
		var healthy []bool
		for _, r := range newest.Resources {
			for _, d := range r.Devices {
				healthy = append(healthy, r.Joined && d.Healthy)
			}
		}
		select {
		case p <- healthy:
		case <-ctx.Done():
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

func (listener) Notes() []string { return []string{"a note"} }

// await waits until a publisher is told of these.
func (p listener) await(t *testing.T, want ...bool) {
	t.Helper()
	limit := time.After(20 * time.Second)
	for {
		select {
		case got := <-p:
			if slices.Equal(got, want) {
				return
			}
		case <-limit:
			t.Fatal("the publisher is not told")
		}
	}
}

// TestPublisher: who publishes is told of every announcement, and of a plugin that leaves; and only where its
// plugin serves.
func TestPublisher(t *testing.T) {
	dir, first, second := shortDir(t)+"/run", make(listener), make(listener)
	a, stop := startWith(t, Config{RunDir: dir, Publisher: first, Log: slog.New(slog.DiscardHandler)})
	member := a.Member(gpus, device.GPU)
	member.Publish(device.Announcement{Devices: []device.Device{{ID: "0", Healthy: true}}})
	first.await(t, true)
	await(t, dir, func(s *api.StatusResponse) bool { return slices.Equal(s.GetNotes(), []string{"a note"}) })
	member.Publish(device.Announcement{Devices: []device.Device{{ID: "0"}}})
	first.await(t, false)

	b, _ := startWith(t, Config{RunDir: dir, Publisher: second, Log: slog.New(slog.DiscardHandler)})
	b.Member(vfs, device.VF).Publish(device.Announcement{Devices: []device.Device{{ID: "1", Healthy: true}}})
	first.await(t, false, true)
	select {
	case <-second:
		t.Error("two publish the node")
	default:
	}
	stop()
	second.await(t, false, true)
}

// failing is a Publisher that fails twice, in two ways, and says when it works.
type failing struct {
	calls int
	works chan struct{}
}

func (p *failing) Publish(ctx context.Context, _ Announced) error {
	switch p.calls++; p.calls {
	case 1:
		panic("a mistake")
	case 2:
		return errors.New("a fault")
	}
	close(p.works)
	<-ctx.Done()
	return nil
}

func (*failing) Notes() []string { return nil }

// A publisher that fails is called again while its plugin serves.
func TestPublisherThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &failing{works: make(chan struct{})}
		c := &Config{Publisher: p, Log: slog.New(slog.DiscardHandler)}
		ctx, cancel := context.WithCancel(t.Context())
		begun, ended := time.Now(), make(chan struct{})
		go func() { publishNode(ctx, c, published{}); close(ended) }()
		select {
		case <-p.works:
		case <-time.After(time.Hour):
			t.Error("it is not called again")
		}
		if got := time.Since(begun); got > 2*publishPause {
			t.Errorf("it works again after %s", got)
		}
		cancel()
		<-ended
	})
}
