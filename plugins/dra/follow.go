// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/plugins/dra/claims"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// viewer maintains the current view of the node: from the machine, the cluster's features, the claims and the
// holders without a claim.
type viewer struct {
	config     Config
	complaints *complaints
	gates      *gates
	holders    *holderView
	preparer   *claims.Preparer

	newest    *system.Newest[*view] // written only by the goroutine of follow, and by Run before
	changed   system.Trigger        // an input of the view may have changed
	refreshes chan chan struct{}    // closed by follow after a refresh

	// of the goroutine of follow, and of Run before
	machine pool.Machine // without holders
	looks   int          // number of looks at the machine
	noted   []string     // logged notes
}

func newViewer(config Config, complaints *complaints, gates *gates, preparer *claims.Preparer) *viewer {
	return &viewer{
		config: config, complaints: complaints, gates: gates, preparer: preparer,
		holders: newHolderView(config, complaints), newest: system.NewNewest(&view{}), changed: system.NewTrigger(),
		refreshes: make(chan chan struct{}),
	}
}

// scan is the result of a look at the machine, with notifications of changes.
type scan struct {
	machine   pool.Machine    // without holders
	gpus, vfs <-chan struct{} // nil for devices that the node does not have
}

// look scans the machine.
func (w *viewer) look() (scan, error) {
	var found scan
	var offered map[string][]gpu.Device
	var in []pools.Pool
	of := pool.MachineSources{Sys: w.config.Host.Sys}
	if w.config.GPUs != nil {
		offered, of.Links, found.gpus = w.config.GPUs.All()
	}
	if w.config.VFs != nil {
		in, found.vfs = w.config.VFs.All()
	}
	tree, err := w.config.Tree()
	if err != nil {
		return found, err
	}
	of.Tree, of.GPUs, of.Pools = tree, offered, in
	found.machine = pool.NewMachine(of)
	return found, nil
}

// begin builds the first view.
func (w *viewer) begin(ctx context.Context) (scan, error) {
	found, err := w.look()
	if err != nil {
		return found, err
	}
	w.machine = found.machine
	w.holders.update(ctx, found.machine)
	w.update()
	return found, nil
}

// lookRetry is the pause until another look at the machine after a failed one: the change that caused the
// failed look may be the last change.
const lookRetry = 5 * time.Second

// follow updates the view after each change until ctx is done.
func (w *viewer) follow(ctx context.Context, now scan) error {
	w.machine = now.machine
	var again <-chan time.Time // after a failed look
	for {
		w.update()
		select {
		case <-ctx.Done():
			return nil
		case answer := <-w.refreshes:
			w.update()
			close(answer)
			continue
		case <-w.changed:
			continue
		case <-now.gpus:
		case <-now.vfs:
		case <-again:
		}
		seen, err := w.look()
		w.complaints.report("devices not read; using the last known devices", err)
		if again = nil; err != nil {
			seen.machine, again = w.machine, time.After(lookRetry)
		}
		now, w.machine = seen, seen.machine
		w.looks++
	}
}

// refresh waits until follow has updated the view.
func (w *viewer) refresh(ctx context.Context) error {
	answer := make(chan struct{})
	select {
	case w.refreshes <- answer:
	case <-ctx.Done():
		return fmt.Errorf("put together what the node has: no answer: %w", ctx.Err())
	}
	<-answer
	return nil
}

// update builds a new view, unless the inputs are the same.
func (w *viewer) update() {
	last := w.newest.Get()
	now := observation{Gates: w.gates.features(), looks: w.looks, holders: w.holders.holders.Get()}
	now.Bound, now.inUse, now.unread = w.preparer.Bound()
	w.complaints.report("prepared claims not read; using the last known claims", now.unread)
	if now.unread != nil {
		now.Bound, now.inUse = last.Bound, last.inUse
		if now.unread = fmt.Errorf("it is not known what claims have: %w", now.unread); now.Bound != nil {
			now.unread = nil
		}
	}
	if now.holders == nil && now.unread == nil {
		now.unread = errUnrecorded
	}
	if last.State.Pool.Devices != nil && last.equal(now) {
		return
	}
	v := newView(w.machine, now, pool.Options{
		VFsPerPF: w.config.VFsPerPF, PairsAsVFs: w.config.PairsAsVFs, FailedLater: last.failedLater(w.machine),
	})
	w.logNotes(v.notes())
	w.newest.Set(v)
}

// logNotes logs new notes.
func (w *viewer) logNotes(notes []string) {
	for _, note := range notes {
		if !slices.Contains(w.noted, note) {
			w.config.Log.Warn("note on the published devices", "note", note)
		}
	}
	w.noted = notes
}

// watchHolders updates the holders and the view periodically until ctx is done: another process of the driver
// may have prepared claims.
func (w *viewer) watchHolders(ctx context.Context) {
	tick := time.NewTicker(holdersPause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		w.holders.update(ctx, w.newest.Get().State.Machine)
		w.changed.Fire()
	}
}
