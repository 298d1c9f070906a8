package admission

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/history"
	"github.com/tandem-k8s/tandem/coordination/inflight"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/coordination/store"
	"github.com/tandem-k8s/tandem/topology"
)

// Config is what a coordinator reads, and whom it tells. The functions are called from several goroutines.
type Config struct {
	RunDir    string           // folder of the file that the next server reads, and of pairs files
	Alignment intent.Alignment // of pods that say nothing
	Log       *slog.Logger
	Observer  Observer // nil for none

	// Refresh reads the PCI tree where an announcement tells of what the newest one lacks.
	Refresh func(device.Announcement) error
	// Newest is the tree that was read last.
	Newest func() *topology.Tree
	// Look shows all pods by PodResources List. It is not called while devices are being allocated. Nil for
	// never.
	Look func(context.Context) (kubelet.View, error)
	// Get shows one pod by PodResources Get. It is safe at any time.
	Get func(context.Context, kubelet.Pod) (kubelet.View, error)
	// Recorded reads the kubelet's checkpoint: who has which device.
	Recorded func() (kubelet.Checkpoint, error)
	// Granted reads what the checkpoint has of containers: their devices and mounts.
	Granted func() ([]kubelet.Granted, error)
	// Pods tells what the pods of the node ask for, false where no source does. Nil for never.
	Pods func(context.Context) (intent.Answer, bool)
	// AllocatableCPUs are those that containers can have alone. Nil for never.
	AllocatableCPUs func(context.Context) (topology.CPUSet, error)
	// NodeCPUs are all CPUs by NUMA node.
	NodeCPUs func() map[int]topology.CPUSet
	// Policy is that of the kubelet's Topology Manager, "" where it is not known. Nil for never.
	Policy func() hints.Policy
}

// Coordinator answers for both plugins: it turns the kubelet's separate questions into one decision.
type Coordinator struct {
	Config

	store    *store.Store[kept]
	inFlight *inflight.Allocates
	sight    sight

	now   func() time.Time
	state atomic.Pointer[state]
	pairs *pairs.Folder

	mu        sync.Mutex // held while a decision is made, and never while something is read or written
	history   history.Log
	announced chan struct{} // closed on the next announcement; nil where nobody waits
	closed    bool          // another server goes on: nothing is decided here any more
}

// New makes a coordinator that goes on where an earlier one of the run folder ended.
func New(config Config) (*Coordinator, error) {
	store, err := store.Open[kept](config.RunDir, config.Log)
	if err != nil {
		return nil, err
	}
	c := &Coordinator{Config: config, store: store, inFlight: inflight.New(time.Now), now: time.Now}
	c.history.Lives = c.lives
	c.pairs = pairs.NewFolder(filepath.Join(config.RunDir, "pairs"), config.Log)
	c.state.Store(newState(config.Newest()))
	c.recover()
	return c, nil
}

// Save writes down what the next server reads whenever it has changed, and once more when ctx is done. It is
// called once.
func (c *Coordinator) Save(ctx context.Context) error {
	return c.store.Run(ctx, c.kept)
}

// touched notes that something has changed which is written down. It does not block.
func (c *Coordinator) touched() { c.store.Touch() }

// Alive reports that a decision hangs, so that a restart would help. It waits until ctx is done at most.
func (c *Coordinator) Alive(ctx context.Context) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !c.mu.TryLock() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the coordinator hangs: %w", context.Cause(ctx))
		}
	}
	c.mu.Unlock()
	return nil
}

// errClosed means that a server has ended.
var errClosed = errors.New("this server has ended; the other plugin serves next")

// Close has nothing decided or recorded from now on.
func (c *Coordinator) Close() { c.locked(func() { c.closed = true }) }

// Announce takes a plugin's devices over.
func (c *Coordinator) Announce(name string, kind device.Kind, a device.Announcement) error {
	defer c.touched()
	if err := c.Refresh(a); err != nil {
		c.Log.Warn("keep the PCI tree as it was read before", "error", err)
	}
	c.inFlight.Forget(name)
	held := c.heldByRecord(name)
	err := c.decide(func(d *deciding) (err error) {
		d.tree = c.Newest() // another announcement may have made it newer than this one
		d.resources, err = d.resources.Announce(name, kind, a, func(id string) bool {
			return held(id) || !d.books().isFree(name, id)
		})
		d.hold(d.found)
		return err
	})
	if err != nil {
		return err
	}
	c.tellAnnounced()
	c.tidy()
	return nil
}

// heldByRecord reports which devices of a resource the kubelet's checkpoint shows with a container.
func (c *Coordinator) heldByRecord(name string) func(id string) bool {
	recorded, err := c.Recorded()
	return func(id string) bool { return err == nil && recorded.HeldBy("", name, id) }
}

// Leave notes that the plugin of a resource is gone.
func (c *Coordinator) Leave(name string) {
	defer c.touched()
	// of a server that has ended nobody is told
	_ = c.decide(func(d *deciding) error {
		d.resources = d.resources.Leave(name)
		d.hold(d.found)
		return nil
	})
	c.tellAnnounced()
}

// Begin notes an Allocate of which the plugin will tell when it returns.
func (c *Coordinator) Begin(resource string, ids []string) { c.inFlight.Begin(resource, ids) }

// Returned notes that the kubelet is about to have its answer to an Allocate.
func (c *Coordinator) Returned(resource string, ids []string) { c.inFlight.End(resource, ids) }
