// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/coordination/system"
)

// Reasons why a registration has no effect although the kubelet keeps its stream open. A new registration
// solves each.
var (
	errForgotten = errors.New("the kubelet has none of the devices any more")
	errRivalGone = errors.New("another plugin that served the resource is gone")
)

const (
	lookPause = 10 * time.Second // between two checks
	settle    = time.Second      // from the sign of a change to the check
	lookLimit = time.Second      // for one call to the kubelet
	// behindLimit is the time for which the kubelet may keep one list that is not the current one. It applies
	// the lists of all resources one after another, and writes its checkpoint, with fsync, after each.
	behindLimit = 30 * time.Second
)

// guard checks whether the kubelet still uses a registration.
//
// Another plugin that registers the same resource later takes it over without notice to this plugin, whose
// stream stays open. Before 1.37 the kubelet forgets the devices when that plugin ends; from 1.37 on it uses
// this plugin again, but keeps the other plugin's list (PluginDisconnected in
// pkg/kubelet/cm/devicemanager/manager.go). The guard therefore compares the kubelet's allocatable devices
// with the lists sent to it, twice before it acts, and for longer if the kubelet has an earlier list: then
// the kubelet is late, and a new registration would delay it further. While the other plugin runs the guard
// does nothing: before 1.37 two plugins that register in turn end each other's streams.
type guard struct {
	*Server
	socket  string
	earlier sockets        // of other plugins that were there before the socket
	changed system.Trigger // the directory may have changed
	lost    chan error     // holds the reason to register again
	work    sync.WaitGroup
	cancel  context.CancelFunc

	listed  sockets     // sockets of other plugins when the kubelet last agreed
	suspect sockets     // sockets of listed that had a listener, and all later sockets
	differs bool        // the kubelet did not agree at the last check
	answer  fingerprint // the kubelet's devices at the last check
	since   time.Time   // time since which the kubelet has had answer without agreement
	rivals  sockets     // possible sockets of the plugin that took over; nil for none
}

// newGuard returns the guard of a registration with a socket, before which the sockets of others existed.
func (s *Server) newGuard(socket string, earlier sockets) *guard {
	return &guard{
		Server: s, socket: socket, earlier: earlier, changed: system.NewTrigger(), lost: make(chan error, 1),
		listed: sockets{}, suspect: sockets{}, cancel: func() {},
	}
}

// start begins the checks after the kubelet has opened a device list stream.
func (g *guard) start(ctx context.Context) {
	ctx, g.cancel = context.WithCancel(ctx)
	g.work.Go(func() {
		if err := g.run(ctx); err != nil {
			g.lost <- err
		}
	})
}

func (g *guard) stop() {
	g.cancel()
	g.work.Wait()
}

// run returns the reason to register again, or nil when ctx is done.
func (g *guard) run(ctx context.Context) error {
	g.devices.begin()
	if others, err := g.others(); err == nil {
		g.listed, g.suspect = others, others.living()
	}
	next := time.Now().Add(settle)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-g.changed:
			if others, err := g.others(); err == nil && !maps.Equal(others, g.listed) {
				maps.Copy(g.suspect, others)
				if soon := time.Now().Add(settle); soon.Before(next) {
					next = soon
				}
			}
			continue
		case <-time.After(time.Until(next)):
		}
		if err := g.look(ctx); err != nil {
			return err
		}
		pause := lookPause
		if g.differs && g.rivals == nil {
			pause = settle
		}
		next = time.Now().Add(pause + rand.N(pause/4)) // spreads the checks of a node's resources
	}
}

func (g *guard) others() (sockets, error) {
	return otherSockets(g.KubeletDir, g.socket, g.resource.Name())
}

// look returns the reason to register again, or nil.
func (g *guard) look(ctx context.Context) error {
	if g.rivals != nil {
		return g.awaitGone()
	}
	others, err := g.others()
	if err != nil {
		g.Log.Debug("sockets of other plugins not read", "error", err)
		return nil
	}
	if rivals := others.named(g.resource.Name(), g.earlier).living(); len(rivals) > 0 {
		g.lose(rivals)
		return nil
	}
	has, err := g.has(ctx)
	if err != nil {
		g.Log.Debug("devices of the kubelet not read", "error", err)
		return nil
	}
	before, standing := g.differs, g.devices.standing(has)
	if answer := newFingerprint(has); answer != g.answer || !before {
		g.answer, g.since = answer, time.Now()
	}
	g.differs = standing != upToDate
	switch {
	case !g.differs && !maps.Equal(others, g.listed):
		g.listed, g.suspect = others, others.living()
	case !g.differs:
	case !before:
		maps.Copy(g.suspect, others)
	case standing == behind && time.Since(g.since) < behindLimit:
	case len(has) == 0:
		return errForgotten
	default:
		g.lose(g.suspect)
		return g.awaitGone()
	}
	return nil
}

// awaitGone returns an error when one of the rivals is gone, or if none exists.
func (g *guard) awaitGone() error {
	if len(g.rivals) == 0 || len(g.rivals.living()) < len(g.rivals) {
		return errRivalGone
	}
	return nil
}

// lose reports that the kubelet uses another plugin.
func (g *guard) lose(rivals sockets) {
	g.rivals = rivals
	paths := slices.Sorted(maps.Keys(rivals))
	g.Observer.Unregistered(g.resource.Name(),
		fmt.Errorf("another plugin serves the resource, at one of %v", paths))
	g.Log.Error("another plugin serves the resource; remove the plugin from this node", "at_one_of", paths)
}

// has returns the kubelet's healthy devices. If the kubelet cannot be asked it returns the devices of the
// last list.
func (g *guard) has(ctx context.Context) ([]string, error) {
	if g.Allocatable == nil {
		g.devices.mu.Lock()
		defer g.devices.mu.Unlock()
		return g.devices.healthy(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	return g.Allocatable(ctx, g.resource.Name())
}
