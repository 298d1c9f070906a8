// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"fmt"
	"log/slog"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/plugins/rdma/grants"
)

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
	Pod GetPod
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
