// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/rdma"
)

// Prepare prepares the claims of a pod: of the claims that are not prepared yet, all or none, because the pod
// needs all of them. A repeated call for a claim has the same result. The pods are those of PodsOf; Prepare
// holds the lock and asks nobody. kubelet.ErrNotRead, without an effect, means that the decision depends on
// them. Prepare returns the claims of the call that are prepared, and why the others are not.
func (p *Preparer) Prepare(
	state State, called []*resourceapi.ResourceClaim, pods kubelet.Reading[[]*corev1.Pod],
) ([]Claim, error) {
	release, err := lockFolder(p.Dir)
	if err != nil {
		return nil, err
	}
	defer release()
	known, err := p.readClaims()
	if err != nil {
		return nil, err
	}
	known = Present(state.Machine, known)
	kept, due := splitClaims(known, called)
	fresh, err := p.prepareDue(state, request{known, kept, due, called, pods})
	if err != nil {
		return p.newComposition(newNodeIndex(state), known).listKept(kept), err
	}
	return slices.Concat(kept, fresh), nil
}

// request is a call to prepare claims.
type request struct {
	known  []Claim // all prepared claims of the node
	kept   []Claim // claims of the call that are prepared
	due    []*resourceapi.ResourceClaim
	called []*resourceapi.ResourceClaim // all claims of the call
	pods   kubelet.Reading[[]*corev1.Pod]
}

// prepareDue prepares the claims that are due, and returns them.
func (p *Preparer) prepareDue(state State, r request) (fresh []Claim, err error) {
	if len(r.due) > 0 && state.Unread != nil {
		return nil, fmt.Errorf("prepare claims: %w", state.Unread)
	}
	pods, err := r.neededPods(state)
	if err != nil {
		return nil, err
	}
	others := slices.DeleteFunc(slices.Clone(r.known), func(c Claim) bool {
		return slices.ContainsFunc(r.due, func(claim *resourceapi.ResourceClaim) bool { return claim.UID == c.UID })
	})
	d := newDecision(state, others, groupRequests(r.called, pods))
	fresh, err = d.decideAll(r.due)
	if err != nil {
		return nil, err
	}
	m := p.newComposition(d.nodeIndex, slices.Concat(others, fresh))
	written, err := m.addClaims(r.kept, fresh)
	if err == nil {
		err = (&judgement{composition: m, fresh: fresh, called: r.called, pods: pods}).judgeClaims()
	}
	if err != nil {
		return nil, err
	}
	if err := p.writeDecision(m, fresh, written); err != nil {
		undo := p.forgetClaims(m.claims, fresh)
		return nil, errors.Join(err, undo)
	}
	return fresh, nil
}

// splitClaims separates the prepared claims from the claims that need preparation.
func splitClaims(
	known []Claim, claims []*resourceapi.ResourceClaim,
) (kept []Claim, due []*resourceapi.ResourceClaim) {
	for _, claim := range claims {
		was, _ := FindClaim(known, claim.UID)
		switch {
		case len(driverResults(claim)) == 0: // no device of this driver
		case was.isOf(claim):
			kept = append(kept, was)
		default:
			due = append(due, claim)
		}
	}
	return kept, due
}

// writeDecision writes a decision: first the checkpoint, because files of unknown claims are removed.
func (p *Preparer) writeDecision(m *composition, fresh, written []Claim) error {
	if len(fresh) > 0 {
		if err := p.saveClaims(m.claims); err != nil {
			return err
		}
	}
	for _, c := range written {
		if err := m.writeClaim(c); err != nil {
			return err
		}
	}
	return nil
}

// Unprepare releases the devices of claims, of all or none; for an unprepared claim it does nothing. Claims
// that share containers must end in one call, as all claims of a pod do: the environment of a remaining claim
// includes the devices of the other claims. While the claims of the node are unknown it removes the CDI
// specs, so that pods can end: nothing is prepared meanwhile.
func (p *Preparer) Unprepare(called []kubeletplugin.NamespacedObject) error {
	release, err := lockFolder(p.Dir)
	if err != nil {
		return err
	}
	defer release()
	known, err := p.readClaims()
	var gone []Claim
	for _, claim := range called {
		c, _ := FindClaim(known, claim.UID)
		gone = append(gone, c)
	}
	switch {
	case errors.Is(err, coordination.ErrUnknownClaims):
		p.Log.Error("unpreparing claims without their record", "claims", len(gone), "error", err)
		return p.removeFiles(gone, nil)
	case err != nil:
		return err
	}
	return p.forgetClaims(known, gone)
}

// forgetClaims unprepares claims: it removes their files first, so that the checkpoint contains all claims
// with files.
func (p *Preparer) forgetClaims(known, gone []Claim) error {
	left := slices.DeleteFunc(slices.Clone(known), func(c Claim) bool { return c.isIn(gone) })
	if err := p.removeFiles(gone, left); err != nil {
		return err
	}
	if len(left) == len(known) {
		return nil
	}
	return p.saveClaims(left)
}

// Options configure a Preparer.
type Options struct {
	Dir    string    // the driver's directory, which persists over boots; created if missing
	CDIDir string    // directory of CDI specs, /var/run/cdi
	Host   rdma.Host // locations and disk of files; PairsDir belongs to the Preparer, CDI is not used
	GPUs   *gpu.GPUs // for the edits of containers; nil on a node without GPUs
	Policy intent.Policy
	// Alone means that no device plugin of Tandem writes CDI specs and device-info files: the node is in DRA
	// mode, and this process owns the mode.
	Alone bool

	Log *slog.Logger
}

// Preparer prepares and unprepares claims. Several Preparers may share a directory, also in several
// processes.
type Preparer struct {
	Options
	durable atomic.Pointer[[]byte] // the last content of the checkpoint that is known to survive a power failure

	mu       sync.Mutex
	outdated map[types.UID]string // reasons for files that could not be restored and are there, as logged
}

// New returns a Preparer. It does nothing before the first call.
func New(options Options) *Preparer {
	options.Host.CDI = nil // the CDI specs of claims contain the device nodes
	return &Preparer{Options: options, outdated: map[types.UID]string{}}
}

// Prepared returns the prepared claims, by namespace and name, with the IDs that their devices have on a
// machine.
func (p *Preparer) Prepared(machine pool.Machine) ([]Claim, error) {
	_, known, err := p.loadClaims()
	return Present(machine, known), err
}
