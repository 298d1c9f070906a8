package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Why a registration is worth nothing although the kubelet keeps its stream open. Each is cured by a new one.
var (
	errForgotten = errors.New("the kubelet has none of the devices any more")
	errRivalGone = errors.New("another plugin had taken the resource over, and is gone")
)

const (
	lookPause = 10 * time.Second // between two looks
	settle    = time.Second      // from a sign that something has changed to the look at it
	lookLimit = time.Second      // for one question to the kubelet
	// behindLimit is how long the kubelet may have one and the same list before the newest. It takes the lists
	// of all resources one after the other, and writes its checkpoint, with fsync, after each.
	behindLimit = 30 * time.Second
)

// guard looks whether the kubelet still goes by a registration.
//
// Another plugin that registers the same resource later takes it over without a word to this one, whose
// stream stays open. Before 1.37 the kubelet forgets the devices when that plugin goes; from then on it comes
// back to this one, but keeps the other's list (PluginDisconnected in
// pkg/kubelet/cm/devicemanager/manager.go). So what the kubelet has to give is compared with what it was
// told, twice before it is believed, and for longer where it is a list before the newest: then the kubelet is
// behind, and a new registration would put it further behind. While the other plugin lives nothing is done:
// before 1.37 each of two that register in turn ends the other's stream.
type guard struct {
	*Server
	socket  string
	made    time.Time     // when the socket was
	changed chan struct{} // holds a token when something in the folder may have changed
	lost    chan error    // holds why to register again
	work    sync.WaitGroup
	cancel  context.CancelFunc

	listed  sockets     // of others, when the kubelet last agreed
	suspect sockets     // those of them that somebody listened on, and all that came since
	differs bool        // the kubelet did not agree at the last look
	answer  fingerprint // what the kubelet had at the last look
	since   time.Time   // since when it has had that and not agreed
	rivals  sockets     // one is of the plugin that took over; nil while the kubelet goes by this one
}

func (s *Server) newGuard(socket string) *guard {
	g := &guard{
		Server: s, socket: socket, changed: make(chan struct{}, 1), lost: make(chan error, 1), cancel: func() {},
	}
	if info, err := os.Lstat(socket); err == nil {
		g.made = info.ModTime()
	}
	return g
}

// start begins to look. The kubelet has opened a device list stream.
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

// touch says that something in the folder may have changed.
func (g *guard) touch() {
	select {
	case g.changed <- struct{}{}:
	default:
	}
}

// run returns why to register again, or nil when ctx is done.
func (g *guard) run(ctx context.Context) error {
	g.devices.begin()
	g.listed = g.others()
	g.suspect = g.listed.living()
	next := time.Now().Add(settle)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-g.changed:
			if others := g.others(); !maps.Equal(others, g.listed) {
				maps.Copy(g.suspect, others)
				next = earlier(next, time.Now().Add(settle))
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
		next = time.Now().Add(pause + rand.N(pause/4)) // not all resources of a node at once
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// look returns why to register again, if that is to be done.
func (g *guard) look(ctx context.Context) error {
	if g.rivals != nil {
		return g.awaitGone()
	}
	others := g.others()
	if rivals := others.named(g.resource.Name(), g.made).living(); len(rivals) > 0 {
		g.lose(rivals)
		return nil
	}
	has, err := g.has(ctx)
	if err != nil {
		g.log.Debug("cannot compare the kubelet's devices with ours", "error", err)
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

// awaitGone returns an error once one of the rivals is gone, or where there is none.
func (g *guard) awaitGone() error {
	if len(g.rivals) == 0 || len(g.rivals.living()) < len(g.rivals) {
		return errRivalGone
	}
	return nil
}

// lose tells that the kubelet goes by another plugin.
func (g *guard) lose(rivals sockets) {
	g.rivals = rivals
	paths := slices.Sorted(maps.Keys(rivals))
	g.observer.Unregistered(g.resource.Name(),
		fmt.Errorf("another plugin has taken it over, at one of %v", paths))
	g.log.Error("another plugin has taken the resource over: remove it from this node", "at_one_of", paths)
}

// has asks the kubelet which healthy devices it has. Where that cannot be asked it is what the kubelet was
// told.
func (g *guard) has(ctx context.Context) ([]string, error) {
	if g.allocatable == nil {
		return g.healthy(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	return g.allocatable(ctx, g.resource.Name())
}

// healthy are the healthy devices that the kubelet was told of last, sorted.
func (g *guard) healthy() []string {
	list, _, _ := g.devices.latest()
	var ids []string
	for _, d := range list.GetDevices() {
		if d.GetHealth() == v1beta1.Healthy {
			ids = append(ids, d.GetID())
		}
	}
	return ids
}
