// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/plugins/dra/claims"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/topology"
)

// viewer maintains the current view of the node: from the machine, the cluster's features, the claims and the
// holders without a claim.
type viewer struct {
	parts
	gates     *gates
	holders   *holderView
	changed   system.Trigger     // an input of the view may have changed
	refreshes chan chan struct{} // closed by followChanges after a refresh

	// of the goroutine of followChanges, and of Run before
	scan
	looks int      // number of looks at the machine
	noted []string // logged notes
}

func newViewer(p parts) *viewer {
	return &viewer{
		parts: p, gates: newGates(p.config.Client, p.config.NodeName, p.config.Log),
		holders: newHolderView(p.config, p.complaints), changed: system.NewTrigger(),
		refreshes: make(chan chan struct{}),
	}
}

// scan is the result of a look at the machine, with notifications of changes.
type scan struct {
	machine   pool.Machine    // without holders
	gpus, vfs <-chan struct{} // nil for devices that the node does not have
}

// scanMachine scans the machine.
func (w *viewer) scanMachine() (found scan, err error) {
	unread := func(topology.Address) bool { return true } // as long as nobody reads GPUs
	of := pool.MachineSources{Sys: w.config.Host.Sys, MayHide: unread}
	if w.config.GPUs != nil {
		of.GPUs, of.Links, of.MayHide, found.gpus = w.config.GPUs.All()
	}
	if w.config.VFs != nil {
		of.Pools, found.vfs = w.config.VFs.All()
	}
	of.Tree, err = w.config.Tree()
	if err != nil {
		return found, err
	}
	found.machine = pool.NewMachine(of)
	return found, nil
}

// buildFirst builds the first view.
func (w *viewer) buildFirst(ctx context.Context) (err error) {
	w.scan, err = w.scanMachine()
	if err != nil {
		return err
	}
	w.holders.updateHolders(ctx, w.machine)
	w.updateView()
	return nil
}

// lookRetry is the pause until another look at the machine after a failed one: the change that caused the
// failed look may be the last change.
const lookRetry = 5 * time.Second

// followChanges updates the view after each change until ctx is done.
func (w *viewer) followChanges(ctx context.Context) error {
	var again <-chan time.Time // after a failed look
	for {
		w.updateView()
		select {
		case <-ctx.Done():
			return nil
		case answer := <-w.refreshes:
			w.updateView()
			close(answer)
			continue
		case <-w.changed:
			continue
		case <-w.gpus:
		case <-w.vfs:
		case <-again:
		}
		seen, err := w.scanMachine()
		w.complaints.reportResult("devices not read; using the last known devices", err)
		again = nil
		if err != nil {
			seen.machine, again = w.machine, time.After(lookRetry)
		}
		w.scan = seen
		w.looks++
	}
}

// awaitUpdate waits until followChanges has updated the view.
func (w *viewer) awaitUpdate(ctx context.Context) error {
	answer := make(chan struct{})
	select {
	case w.refreshes <- answer:
	case <-ctx.Done():
		return fmt.Errorf("put together what the node has: no answer: %w", ctx.Err())
	}
	<-answer
	return nil
}

// updateView builds a new view, unless the inputs are the same.
func (w *viewer) updateView() {
	last := w.newest.Get()
	now := observation{Gates: w.gates.currentFeatures(), looks: w.looks, holders: w.holders.holders.Get()}
	now.prepared = w.readClaims(w.machine)
	if _, err := now.prepared.Get(); err != nil {
		now.unread = fmt.Errorf("it is not known what claims have: %w", err)
	} else if now.holders == nil {
		now.unread = errUnrecorded
	}
	if last.State.Pool.Devices != nil && last.isEqual(now) {
		return
	}
	v := newView(w.machine, now, pool.Options{
		VFsPerPF: w.config.VFsPerPF, PairsAsVFs: w.config.PairsAsVFs, WasSound: last.listSound(),
	})
	w.logNotes(v.listNotes())
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
		w.holders.updateHolders(ctx, w.newest.Get().State.Machine)
		w.changed.Fire()
	}
}

// Intervals between requests to the API server for the prepared claims: in general, while a claim is gone,
// and after a failure. A claim that is gone is unprepared after orphanPatience, unless one of its pods runs.
// A kubelet that knows the claim unprepares the claim itself after the end of the pods, at the latest in its
// next reconciliation, which happens every minute (reconcileLoop in pkg/kubelet/cm/dra/manager.go).
const (
	claimsPause    = 10 * time.Minute
	orphanPause    = 30 * time.Second
	claimsRetry    = 5 * time.Second
	orphanPatience = 3 * time.Minute
)

// orphanCollector unprepares claims that no longer exist.
type orphanCollector struct {
	*claimService
	gone map[types.UID]time.Time // prepared claims that the API server does not have, since when
}

func newOrphanCollector(service *claimService) *orphanCollector {
	return &orphanCollector{claimService: service, gone: map[types.UID]time.Time{}}
}

// collectPeriodically collects until ctx is done: periodically, and after a refused claim, whose devices an
// orphan may hold.
func (o *orphanCollector) collectPeriodically(ctx context.Context) {
	for {
		pause := o.collectOrphans(ctx, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-o.refused:
		case <-time.After(pause):
		}
	}
}

// collectOrphans asks the API server for the prepared claims, records their pods, and unprepares claims that
// have been gone for some time. It returns the pause until the next call.
func (o *orphanCollector) collectOrphans(ctx context.Context, now time.Time) (pause time.Duration) {
	prepared, err := o.preparer.Prepared(o.newest.Get().State.Machine)
	if err != nil {
		return claimsRetry
	}
	pause = claimsPauseOf(o.config.NodeName)
	since := map[types.UID]time.Time{}
	for _, c := range prepared {
		claim, err := o.config.Client.ResourceV1().ResourceClaims(c.Namespace).Get(ctx, c.Name, metav1.GetOptions{})
		switch {
		case err == nil && claim.UID == c.UID:
			o.owners.learnPods(claim)
			o.completeStatus(claim, c)
			continue
		case err != nil && !apierrors.IsNotFound(err):
			pause = min(pause, claimsRetry)
			if first, before := o.gone[c.UID]; before {
				since[c.UID] = first
			}
			continue
		}
		first, before := o.gone[c.UID]
		if !before {
			first = now
		}
		if now.Sub(first) < orphanPatience || o.isUsed(ctx, c, claim) || !o.unprepareOrphan(ctx, c) {
			since[c.UID] = first
			pause = min(pause, orphanPause)
		}
	}
	o.gone = since
	return pause
}

// claimsPauseOf returns the pause of a node, up to a fifth longer than claimsPause: nodes that start at the
// same time ask at different times.
func claimsPauseOf(nodeName string) time.Duration {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(nodeName)) // never fails
	return claimsPause + time.Duration(float64(claimsPause)*0.2*float64(hash.Sum32())/math.MaxUint32)
}

// isUsed reports whether a pod with a claim runs, or may run: a forced deletion of a claim does not end the
// pods. The kubelet does not call for a later pod that shares the claim, so all pods that the kubelet runs
// count, with the claims that the API server tells; unknown ones have the claim. A pod of another claim with
// the same name uses that one.
func (o *orphanCollector) isUsed(
	ctx context.Context, c claims.Claim, another *resourceapi.ResourceClaim,
) bool {
	for _, its := range o.owners.outcomeOf(c).Pods {
		pod, err := o.config.Client.CoreV1().Pods(c.Namespace).Get(ctx, its.Name, metav1.GetOptions{})
		isGone := apierrors.IsNotFound(err) || err == nil && pod.UID != its.UID
		if !isGone && (err != nil || !kubelet.HasEnded(pod)) {
			return true
		}
	}
	running, err := o.viewer.holders.listPods(ctx)
	if err != nil {
		return true
	}
	for _, name := range running.Pods {
		if name.Namespace != c.Namespace {
			continue
		}
		pod, err := o.config.Client.CoreV1().Pods(c.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
		if err != nil || !kubelet.HasEnded(pod) && claims.Uses(pod, c.Name) && !isReserved(another, pod) {
			return true
		}
	}
	return false
}

// isReserved reports whether a claim is reserved for a pod.
func isReserved(claim *resourceapi.ResourceClaim, pod *corev1.Pod) bool {
	return claim != nil && slices.Contains(claims.PodsOf(claim), claims.Pod{Name: pod.Name, UID: pod.UID})
}

// unprepareOrphan unprepares an orphan, and reports success.
func (o *orphanCollector) unprepareOrphan(ctx context.Context, c claims.Claim) bool {
	log := o.config.Log
	log.Warn("unpreparing a claim that no longer exists and that the kubelet did not unprepare",
		"claim", c.Namespace+"/"+c.Name, "uid", c.UID)
	answers, err := o.UnprepareResourceClaims(ctx, []kubeletplugin.NamespacedObject{{
		NamespacedName: types.NamespacedName{Namespace: c.Namespace, Name: c.Name}, UID: c.UID,
	}})
	return err == nil && answers[c.UID] == nil
}

// filesPause is the interval between checks of the files of prepared claims.
const filesPause = 10 * time.Second

// filesMissing is the consequence of an error while restoring files.
const filesMissing = "files of prepared claims may be missing, or left behind"

// fileRestorer restores the files of prepared claims.
type fileRestorer struct {
	parts
	failed *system.Newest[error] // reason for missing files, nil if all exist
}

// restoreBy compares all files of claims with the machine, so that a failed write, a lost file and an
// outdated file need no notification.
func (f *fileRestorer) restoreBy(ctx context.Context, restore func(context.Context, claims.State) error) {
	err := restore(ctx, f.newest.Get().State)
	if ctx.Err() == nil && !errors.Is(err, claims.ErrBusy) {
		f.complaints.reportResult(filesMissing, err)
		f.failed.Set(err)
	}
}

// repairPeriodically repairs files periodically until ctx is done, and after a change of the machine's
// devices, such as VFs that appear late after a boot.
func (f *fileRestorer) repairPeriodically(ctx context.Context) {
	tick := time.NewTicker(filesPause)
	defer tick.Stop()
	for {
		_, changed := f.newest.Watch()
		f.restoreBy(ctx, f.preparer.Repair)
		f.removeTemporaries()
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-tick.C:
		}
	}
}

// removeTemporaries removes the temporary files of killed processes from the run directory.
func (f *fileRestorer) removeTemporaries() {
	err := f.config.Host.Disk.RemoveAbandoned(f.config.RunDir)
	f.complaints.reportResult("temporary files of killed processes are left behind", err)
}
