// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/plugins/rdma/grants"
)

// Result is the result of preparing a claim: the answer to the kubelet, and the prepared claim.
type Result struct {
	kubeletplugin.PrepareResult
	Claim Claim
}

// Prepare prepares the claims of a pod: of the claims that are not prepared yet, all or none, because the pod
// needs all of them. A repeated call for a claim returns the same answer.
func (p *Preparer) Prepare(
	ctx context.Context, state State, claims []*resourceapi.ResourceClaim,
) map[types.UID]Result {
	known, err := p.Prepared()
	if err != nil {
		known = nil // all pods are read, and prepare restores the record or returns the error
	}
	var prepared []Claim
	pods, err := findPods(ctx, p.Pod, state, known, claims)
	if err == nil {
		prepared, err = p.prepare(ctx, state, claims, pods)
	}
	results := make(map[types.UID]Result, len(claims))
	for _, claim := range claims {
		results[claim.UID] = Result{PrepareResult: kubeletplugin.PrepareResult{Err: err}}
	}
	for _, c := range prepared {
		results[c.UID] = Result{kubeletplugin.PrepareResult{Devices: c.answer()}, c}
	}
	return results
}

// prepare prepares the claims of a pod. With an error it returns the claims that are prepared nevertheless.
//
// Rebind waits for the API server, so prepare calls Rebind after the release of the lock. Before Rebind
// succeeds, new claims are recorded and have their files, but the kubelet does not get the names of the CDI
// devices: a repeated call finds the claims recorded and calls Rebind again, and the end of the pod
// unprepares the claims.
func (p *Preparer) prepare(
	ctx context.Context, state State, claims []*resourceapi.ResourceClaim, pods []*corev1.Pod,
) ([]Claim, error) {
	kept, fresh, all, err := p.record(state, claims, pods)
	if err != nil {
		return kept, err
	}
	given := slices.Concat(kept, fresh)
	if !redeemed(given...) {
		return given, nil
	}
	if err := p.rebind(ctx, all); err != nil {
		return slices.DeleteFunc(kept, func(c Claim) bool { return redeemed(c) }), err
	}
	return given, nil
}

// record decides about the claims of a pod and writes the decision, under the lock. It returns the claims
// that were prepared before, the new ones, and all claims of the node. With an error it returns the claims
// that are prepared nevertheless.
func (p *Preparer) record(
	state State, claims []*resourceapi.ResourceClaim, pods []*corev1.Pod,
) (kept, fresh, all []Claim, err error) {
	release, err := lock(p.Dir)
	if err != nil {
		return nil, nil, nil, err
	}
	defer release()
	known, err := p.store.read()
	if err != nil {
		return nil, nil, nil, err
	}
	kept, due := split(known, claims)
	failed := func(err error) ([]Claim, []Claim, []Claim, error) { return p.files.complete(kept), nil, nil, err }
	if len(due) > 0 && state.Unread != nil {
		return failed(fmt.Errorf("prepare claims: %w", state.Unread))
	}
	others := slices.DeleteFunc(slices.Clone(known), func(c Claim) bool {
		return slices.ContainsFunc(due, func(claim *resourceapi.ResourceClaim) bool { return claim.UID == c.UID })
	})
	d := newDecision(state, others, group(claims, pods))
	if fresh, err = d.decideAll(due); err != nil {
		return failed(err)
	}
	all = slices.Concat(others, fresh)
	m := p.newComposition(d.nodeIndex, all)
	written, err := m.addAll(kept, fresh)
	if err == nil {
		j := judgement{composition: m, policy: p.Policy, log: p.Log, fresh: fresh, called: claims, pods: pods}
		err = j.judge()
	}
	if err != nil {
		return failed(err)
	}
	if err := p.commit(m, fresh, written); err != nil {
		_, undo := p.forget(all, fresh)
		return failed(errors.Join(err, undo))
	}
	return kept, fresh, all, nil
}

// split separates the prepared claims from the claims that need preparation.
func split(
	known []Claim, claims []*resourceapi.ResourceClaim,
) (kept []Claim, due []*resourceapi.ResourceClaim) {
	for _, claim := range claims {
		switch was := find(known, claim.UID); {
		case len(results(claim)) == 0: // no device of this driver
		case was.isOf(claim):
			kept = append(kept, was)
		default:
			due = append(due, claim)
		}
	}
	return kept, due
}

// commit writes a decision: first the checkpoint, because files of unknown claims are removed.
func (p *Preparer) commit(m *composition, fresh, written []Claim) error {
	if len(fresh) > 0 {
		if err := p.store.save(m.claims); err != nil {
			return err
		}
	}
	for _, c := range written {
		if err := m.write(c); err != nil {
			return err
		}
	}
	return nil
}

// Unprepare releases the devices of claims, of all or none; for an unprepared claim it does nothing. Claims
// that share containers must end in one call, as all claims of a pod do: the environment of a remaining claim
// includes the devices of the other claims.
func (p *Preparer) Unprepare(ctx context.Context, claims []kubeletplugin.NamespacedObject) error {
	gone, left, err := p.unprepare(claims) // without the lock afterwards, as rebind waits
	if err == nil && redeemed(gone...) {
		if err := p.rebind(ctx, left); err != nil {
			p.Log.Warn("device bindings of ended claims are still published", "error", err)
		}
	}
	return err
}

// unprepare unprepares claims, under the lock. It returns the claims that were prepared, and the remaining
// claims. While the claims of the node are unknown it removes the CDI specs, so that pods can end: nothing is
// prepared meanwhile.
func (p *Preparer) unprepare(claims []kubeletplugin.NamespacedObject) (gone, left []Claim, err error) {
	release, err := lock(p.Dir)
	if err != nil {
		return nil, nil, err
	}
	defer release()
	known, err := p.store.read()
	for _, claim := range claims {
		gone = append(gone, find(known, claim.UID))
	}
	switch {
	case errors.Is(err, coordination.ErrUnknownClaims):
		p.Log.Error("unpreparing claims without their record", "claims", len(gone), "error", err)
		return gone, nil, p.files.remove(gone, nil)
	case err != nil:
		return nil, nil, err
	}
	left, err = p.forget(known, gone)
	return gone, left, err
}

// forget unprepares claims: it removes their files first, so that the checkpoint contains all claims with
// files. It returns the remaining claims.
func (p *Preparer) forget(known, gone []Claim) (left []Claim, err error) {
	left = slices.DeleteFunc(slices.Clone(known), func(c Claim) bool { return c.in(gone) })
	if err := p.files.remove(gone, left); err != nil {
		return known, err
	}
	if len(left) == len(known) {
		return left, nil
	}
	return left, p.store.save(left)
}

// Options configure a Preparer.
type Options struct {
	Dir    string      // the driver's directory, which persists over boots; created if missing
	CDIDir string      // directory of CDI specs, /var/run/cdi
	Host   grants.Host // locations and disk of files; PairsDir belongs to the Preparer, CDI is not used
	GPUs   GPUs        // nil on a node without GPUs
	VFs    VFs         // nil on a node without VFs
	Policy intent.Policy
	// Alone means that no device plugin of Tandem writes CDI specs and device-info files: the node is in DRA
	// mode, and this process owns the mode.
	Alone bool

	// Pod reads a pod. The Preparer needs pods to assign requests to containers, if a claim, or several claims
	// of a pod, have more than one request; and for the annotation of a pod whose pair may be apart.
	Pod getPod
	// Rebind publishes the VFs that claims actually have, as returned by Bound: Multus reads there the VF of a
	// device. The Preparer calls Rebind before the answer for a claim with a replaced VF, also if the claim is
	// already prepared; and after unpreparing such a claim, without an effect on the answer. May be nil.
	Rebind func(ctx context.Context, bound map[string]string) error

	Log *slog.Logger
}

// Preparer prepares and unprepares claims. Several Preparers may share a directory, also in several
// processes.
type Preparer struct {
	Options
	files *claimFiles
	store *store
}

// New returns a Preparer. It does nothing before the first call.
func New(options Options) *Preparer {
	options.Host.CDI = nil // the CDI specs of claims contain the device nodes
	files := &claimFiles{
		cdiDir: options.CDIDir, pairsDir: options.Host.PairsDir, disk: options.Host.Disk, log: options.Log,
		outdated: map[types.UID]string{},
	}
	return &Preparer{options, files, &store{dir: options.Dir, files: files, log: options.Log}}
}

// Prepared returns the prepared claims, by namespace and name.
func (p *Preparer) Prepared() ([]Claim, error) {
	_, known, err := p.store.load()
	return known, err
}

// Bound returns the devices of prepared claims, in the form of pool.Options:
//   - the actual VFs, by device of the pool: for a pair its VF, for a VF the assigned VF, and for a single
//     GPU the reserved VF that was assigned for a token;
//   - the devices of the pool through which claims have GPUs and VFs, by ID of the GPU or VF.
func (p *Preparer) Bound() (bound, inUse map[string]string, err error) {
	claims, err := p.Prepared()
	if err != nil {
		return nil, nil, err
	}
	inUse = map[string]string{}
	for _, c := range claims {
		for _, d := range c.Devices {
			for _, id := range d.Holds() {
				inUse[id] = d.Device
			}
		}
	}
	return boundBy(claims), inUse, nil
}

// rebind publishes the VFs of prepared claims.
func (p *Preparer) rebind(ctx context.Context, prepared []Claim) error {
	if p.Rebind == nil {
		return nil
	}
	if err := p.Rebind(ctx, boundBy(prepared)); err != nil {
		return fmt.Errorf("publish which VFs are handed out: %w", err)
	}
	return nil
}

func (p *Preparer) newComposition(index *nodeIndex, claims []Claim) *composition {
	return &composition{
		host: p.Host, gpus: p.GPUs, vfs: p.VFs, files: p.files, index: index, claims: claims,
		environments: map[string]*environment{},
	}
}
