// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/rdma/grants"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// GPUs say what containers need to use GPUs: *gpu.GPUs.
type GPUs interface {
	Refuse(resource string, devices []gpu.Device, unknown []string) error
	Edits(devices []gpu.Device) container.Edits
}

// VFs know the pools of the node's VFs: *rdma.VFs.
type VFs interface {
	Pool(name string) (pools.Pool, bool)
}

// Options are what a Preparer works with.
type Options struct {
	Dir    string      // the driver's own folder, which outlives boots; made where it is not there
	CDIDir string      // where container runtimes look for CDI specs, /var/run/cdi
	Host   grants.Host // where files are; its PairsDir is the Preparer's alone, its CDI is not used
	GPUs   GPUs        // nil on a node without
	VFs    VFs         // likewise
	Policy intent.Policy
	// Alone is whether no device plugin of Tandem's writes CDI specs and device-info files: the mode of the node
	// is DRA, and this process has it.
	Alone bool

	// Pod finds a pod, with the API server's error where there is none. It is asked where a claim, or several of
	// a pod, have more than one request: for which go to the same container. And for its annotation, where a
	// pair is apart.
	Pod func(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	// Rebind publishes the VFs that claims really have, which are what Bound returns: Multus reads there which
	// VF a device stands for. It is called before prepare answers for a claim with a VF in whose place another
	// is handed out, also for one that is prepared already, and, without an effect on the answer, once such a
	// claim has been unprepared. Nil for nobody to tell.
	Rebind func(ctx context.Context, bound map[string]string) error

	Log *slog.Logger
}

// Preparer prepares and unprepares claims. Several may share a folder, also of several processes.
type Preparer struct {
	Options
	disk disk
}

// New makes a Preparer. It does nothing before it is asked.
func New(options Options) *Preparer {
	options.Host.CDI = nil // device nodes are in the CDI specs of claims
	return &Preparer{options, files{}}
}

// Prepare gives the containers of a pod's claims their devices: of those that are not prepared yet, all or
// none, for without one the pod does not start. It may be asked again for a claim and then says the same.
func (p *Preparer) Prepare(
	ctx context.Context, state State, claims []*resourceapi.ResourceClaim,
) map[types.UID]kubeletplugin.PrepareResult {
	var prepared []Claim
	pods, err := p.findPods(ctx, state, claims)
	if err == nil {
		prepared, err = p.prepare(ctx, state, claims, pods)
	}
	answers := make(map[types.UID]kubeletplugin.PrepareResult, len(claims))
	for _, claim := range claims {
		answers[claim.UID] = kubeletplugin.PrepareResult{Err: err}
	}
	for _, c := range prepared {
		answers[c.UID] = kubeletplugin.PrepareResult{Devices: c.answer()}
	}
	return answers
}

// answer is what the kubelet is told of a claim.
func (c Claim) answer() []kubeletplugin.Device {
	devices := make([]kubeletplugin.Device, 0, len(c.Devices))
	for _, d := range c.Devices {
		devices = append(devices, kubeletplugin.Device{
			Requests: []string{d.Request}, PoolName: d.Pool, DeviceName: d.Device, CDIDeviceIDs: d.CDI,
		})
	}
	return devices
}

// Unprepare takes the devices of claims back. A claim that is not prepared is none the worse. Of claims that
// share containers all have to end in one call, as all claims of a pod do: what is left has their devices
// too.
func (p *Preparer) Unprepare(
	ctx context.Context, claims []kubeletplugin.NamespacedObject,
) map[types.UID]error {
	gone, left, err := p.unprepare(claims)
	answers := make(map[types.UID]error, len(claims))
	for _, claim := range claims {
		answers[claim.UID] = err
	}
	if err == nil && redeemed(gone...) {
		if err := p.rebind(ctx, left); err != nil {
			p.Log.Warn("what was published for claims that ended is still there", "error", err)
		}
	}
	return answers
}

// Prepared lists the claims that are prepared, by namespace and name.
func (p *Preparer) Prepared() ([]Claim, error) { return readCheckpoint(p.Dir) }

// Bound returns what prepared claims have, as pool.Options wants it. The VFs that they really have, by the
// device of the pool: of a pair its VF, of a VF the one that was handed out for it, and of a GPU by itself
// the reserved one that was handed out for a token. And the devices of the pool by which they have GPUs and
// VFs, by the ID of these.
func (p *Preparer) Bound() (bound, inUse map[string]string, err error) {
	claims, err := readCheckpoint(p.Dir)
	if err != nil {
		return nil, nil, err
	}
	inUse = map[string]string{}
	for _, c := range claims {
		for _, d := range c.Devices {
			for _, id := range d.holds() {
				inUse[id] = d.Device
			}
		}
	}
	return boundBy(claims), inUse, nil
}

func boundBy(claims []Claim) map[string]string {
	bound := map[string]string{}
	for _, c := range claims {
		for _, d := range c.Devices {
			switch {
			case d.Admin:
			case len(d.VFs) == 1 && len(d.GPUs) <= 1:
				bound[d.Device] = d.VFs[0]
			case d.With != "":
				bound[d.Device] = d.With
			}
		}
	}
	return bound
}

// redeemed reports whether claims have tokens for which other VFs were handed out.
func redeemed(claims ...Claim) bool {
	return slices.ContainsFunc(claims, func(c Claim) bool {
		return slices.ContainsFunc(c.Devices, func(d Prepared) bool { return d.Token != "" })
	})
}

// rebind publishes what is bound, with these claims prepared.
func (p *Preparer) rebind(ctx context.Context, prepared []Claim) error {
	if p.Rebind == nil {
		return nil
	}
	if err := p.Rebind(ctx, boundBy(prepared)); err != nil {
		return fmt.Errorf("publish which VFs are handed out: %w", err)
	}
	return nil
}
