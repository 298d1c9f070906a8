// Package claims says what the containers of a claim get, and remembers it: which GPUs and VFs, their CDI spec,
// what is told of them in the claim's status, until the claim is unprepared.
package claims

import (
	"context"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/tandem-k8s/tandem/dra/inventory"
	"github.com/tandem-k8s/tandem/dra/pool"
)

// State is what the node has to hand out now, and under which names.
type State struct {
	Machine inventory.Machine
	Pool    pool.Pool
}

// Claim is a claim that is prepared.
type Claim struct {
	UID       types.UID  `json:"uid"`
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	Devices   []Prepared `json:"devices"`
}

// Prepared is an allocated device and what was handed out for it.
type Prepared struct {
	Request string   `json:"request"` // "pairs/near" where it is one of several that a request named
	Device  string   `json:"device"`  // its name in the pool
	GPUs    []string `json:"gpus,omitempty"`
	VFs     []string `json:"vfs,omitempty"` // those that are really handed out
}

// Preparer prepares and unprepares claims. One call at a time, of all processes on the node: the helper's lock
// sees to that.
type Preparer struct{}

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

// Prepared lists the claims that are prepared, by namespace and name.
func (p *Preparer) Prepared() ([]Claim, error) { return nil, nil }
