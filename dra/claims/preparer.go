package claims

import (
	"context"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/rdma/grants"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// GPUs say what containers need to use GPUs: *gpu.GPUs.
type GPUs interface {
	Refuse(resource string, devices []gpu.Device, unknown []string) error
	Answer(devices []gpu.Device) *v1beta1.ContainerAllocateResponse
}

// VFs know the pools of the node's VFs: *rdma.VFs.
type VFs interface {
	Pool(name string) (pools.Pool, bool)
}

// Options are what a Preparer works with.
type Options struct {
	Dir    string      // the driver's own folder, which outlives boots; made where it is not there
	CDIDir string      // where container runtimes look for CDI specs, /var/run/cdi
	Host   grants.Host // where files of the machine are; its PairsDir is the Preparer's alone, its CDI is not used
	GPUs   GPUs        // nil on a node without
	VFs    VFs         // likewise
	Policy intent.Policy

	// Pod finds a pod; nil for nobody to ask. It is asked where a claim, or several of a pod, have more than one
	// request: for which go to the same container. And for its annotation, where a pair is apart.
	Pod func(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	// Rebind publishes which VF is handed out in place of the one that a device of the pool names: by the name of
	// the device, the ID of the VF; all of them, and no others. It is called before prepare answers, once what is
	// bound has changed, and may be called for what is bound already. Nil for nobody to tell.
	Rebind func(ctx context.Context, bound map[string]string) error

	Log *slog.Logger
}

// Preparer prepares and unprepares claims. Several may share a folder, also of several processes.
type Preparer struct {
	Options
}

// New makes a Preparer. It does nothing before it is asked.
func New(options Options) *Preparer { return &Preparer{options} }

// Prepare gives the containers of a pod's claims their devices. It may be asked again for a claim and then says
// the same.
func (p *Preparer) Prepare(
	ctx context.Context, state State, claims []*resourceapi.ResourceClaim,
) map[types.UID]kubeletplugin.PrepareResult {
	_, _, _ = ctx, state, claims
	return nil
}

// Unprepare takes the devices of claims back. A claim that is not prepared is none the worse.
func (p *Preparer) Unprepare(
	ctx context.Context, claims []kubeletplugin.NamespacedObject,
) map[types.UID]error {
	_, _ = ctx, claims
	return nil
}

// Restore makes the files those of the claims that are prepared: a boot takes them, not the claims. To be
// called at the start, before the kubelet can call.
func (p *Preparer) Restore(ctx context.Context, state State) error {
	_, _ = ctx, state
	return nil
}

// Prepared lists the claims that are prepared, by namespace and name.
func (p *Preparer) Prepared() ([]Claim, error) { return nil, nil }

// Bound are the devices of the pool in whose place another VF is handed out, with the ID of that VF.
func (p *Preparer) Bound() (map[string]string, error) { return nil, nil }
