// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/topology"
)

// Coordinator answers for both plugins: a Coordinator combines the kubelet's separate questions into a single
// decision.
type Coordinator struct {
	*Config
	*committedState
	*inspector

	reader *reader
	store  *store[savedState]
	pairs  *pairs.Folder
	turn   *semaphore.Weighted // of questions: one at a time
}

// New returns a coordinator that continues from the file of an earlier coordinator in the run folder.
func New(config Config) (*Coordinator, error) {
	opened, err := openStore[savedState](config.Disk, config.RunDir, config.Log)
	if err != nil {
		return nil, err
	}
	folder := pairs.NewFolder(config.Disk, filepath.Join(config.RunDir, "pairs"), config.Log)
	c := newCoordinator(&config, opened, folder, config.Newest(), time.Now)
	c.recoverState()
	return c, nil
}

// newCoordinator returns a coordinator with an empty state.
func newCoordinator(
	config *Config, saved *store[savedState], folder *pairs.Folder, tree *topology.Tree,
	now func() time.Time,
) *Coordinator {
	committed := &committedState{now: now, began: now()}
	committed.state.Store(newState(tree))
	committed.history.IsHeld = func(uid, resource, id string) bool {
		h := committed.current().books().held.Of(resource, id)
		return h != nil && slices.Contains(h.Devices[resource], id) && (uid == "" || h.UID == "" || h.UID == uid)
	}
	reader := &reader{Config: config, inFlight: newOpenAllocates(now)}
	return &Coordinator{
		Config: config, committedState: committed, inspector: &inspector{reader: reader, committed: committed},
		reader: reader, store: saved, pairs: folder, turn: semaphore.NewWeighted(1),
	}
}

// recoverState continues from the state of an earlier server. The kubelet's checkpoint has the holders.
func (c *Coordinator) recoverState() {
	if saved, ok := c.store.load(); ok {
		restore := func() error { return c.restore(saved, c.Log) }
		if err := system.Survive(c.Log, restore); err != nil {
			c.store.setAside(err)
		}
	}
	c.restoreHolders()
}

// Save writes the state for the next server after each change, and a last time when ctx is done. Must be
// called at most once.
func (c *Coordinator) Save(ctx context.Context) error {
	return c.store.run(ctx, c.save)
}

// Alive returns an error if a decision hangs until ctx is done, so that a restart would help.
func (c *Coordinator) Alive(ctx context.Context) error { return c.awaitUnlocked(ctx) }

// Close ends all decisions and records.
func (c *Coordinator) Close() { c.locked(func() { c.closed = true }) }

// Begin records an Allocate in progress, until its plugin reports the end.
func (c *Coordinator) Begin(resource string, ids []string) { c.reader.inFlight.begin(resource, ids) }

// Returned records the end of an Allocate: the kubelet is about to receive the answer, or an error.
func (c *Coordinator) Returned(resource string, ids []string, failed bool) {
	if failed {
		c.fail(resource, ids)
	}
	c.reader.inFlight.end(resource, ids, failed)
}

// decide decides, commits and publishes. After an error, nothing has changed.
func (c *Coordinator) decide(work func(*transaction) error) error {
	tx, err := c.commit(work)
	if err == nil {
		c.publish(tx)
	}
	return err
}

// publish publishes the report of a committed decision. Returns false if a pairs file is incomplete.
func (c *Coordinator) publish(tx *transaction) bool {
	tx.report.publish(c.Log, OrNobody(c.Observer))
	if !tx.paired {
		return true
	}
	all := func() []pairs.Device { return pairedDevices(tx.state, c.current()) }
	return c.pairs.Complete(tx.open.files, tx.open.vfs, tx.tree, all)
}
