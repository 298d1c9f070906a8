// SPDX-License-Identifier: Apache-2.0

// Package claims says what the containers of a claim get, and remembers it: which GPUs and VFs, their CDI
// spec, what is told of them in the claim's status, until the claim is unprepared.
//
//	claims, pool ──decide──▶ Claim ──▶ checkpoint (claims.json)    what is handed out for which device
//	      pod ──containers──▶  │
//	                           └─────▶ CDI spec of the claim       what its containers get
//	                                   pairs files, device-info files
//
// Everything is decided by pure functions of what the node has, what the scheduler allocated and what is
// prepared already. A pair or a bundle is handed out as it is named. A VF that was allocated by itself beside
// a GPU is a token: another VF can be handed out in its place, the GPU's reserved one above all, which nobody
// else can get as long as the claim has the GPU. The token's own VF stays idle, which nobody else can get as
// long as the claim has the token. So no claim ever gets what the scheduler could give to another.
//
// What containers get is what the device plugins give: the same code answers, and its answer becomes a CDI
// device. Requests of one container carry the same, whole environment, for of equal variables in several CDI
// devices a container keeps one.
//
// The order of effects makes that a process can be killed at any time. Prepare writes the checkpoint,
// durably, then the files, then answers; unprepare removes the files, then writes the checkpoint. What lies
// between is made good by [Preparer.Restore] or by the kubelet, which asks again. A claim is answered as
// prepared only while its files are there. Two processes may share a folder: each reads the checkpoint anew
// under a lock.
package claims

import (
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/tandem-k8s/tandem/dra/inventory"
	"github.com/tandem-k8s/tandem/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// State is what the node has to hand out now, and under which names.
type State struct {
	Machine inventory.Machine
	Pool    pool.Pool
	Unread  error // why it is not known who has which devices; nil where it is
}

// GPUs returns the edits for containers with GPUs: *gpu.GPUs.
type GPUs interface {
	Refuse(resource string, devices []gpu.Device, unknown []string) error
	Edits(devices []gpu.Device) container.Edits
}

// VFs returns the pools of the node's VFs: *rdma.VFs.
type VFs interface {
	Pool(name string) (pools.Pool, bool)
}

// Claim is a claim that is prepared.
type Claim struct {
	UID       types.UID  `json:"uid"`
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	Devices   []Prepared `json:"devices"` // none where all that is known of it is that it has a CDI spec
	Pods      []Pod      `json:"pods,omitempty"`
}

// Pod is a pod that a claim was reserved for when it was prepared.
type Pod struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
}

// Prepared is an allocated device and what was handed out for it.
type Prepared struct {
	Request string   `json:"request"` // "pairs/near" where it is one of several that a request named
	Pool    string   `json:"pool"`    // of the node, in its ResourceSlices
	Device  string   `json:"device"`  // its name in the pool
	GPUs    []string `json:"gpus,omitempty"`
	VFs     []string `json:"vfs,omitempty"`   // those that are really handed out
	Token   string   `json:"token,omitempty"` // the VF that the device names, where another is handed out
	With    string   `json:"with,omitempty"`  // of a GPU by itself: its reserved VF, handed out for a token
	Admin   bool     `json:"admin,omitempty"` // for looking at: another claim may have it too
	Group   string   `json:"group"`           // requests with the same one go to the same containers
	CDI     []string `json:"cdi,omitempty"`   // what container runtimes are told to add, once for each request
}

// String names the claim for people: "claim team/train-0".
func (c Claim) String() string { return "claim " + c.Namespace + "/" + c.Name }

// in reports whether the claim is one of some.
func (c Claim) in(claims []Claim) bool {
	return slices.ContainsFunc(claims, func(d Claim) bool { return d.UID == c.UID })
}

// request is the request of the claim, without the name of a subrequest.
func (p Prepared) request() string {
	request, _, _ := strings.Cut(p.Request, "/")
	return request
}

// holds are the devices that nobody else may get, idle ones included.
func (p Prepared) holds() []string {
	switch {
	case p.Admin:
		return nil
	case p.Token != "":
		return append(slices.Concat(p.GPUs, p.VFs), p.Token)
	default:
		return slices.Concat(p.GPUs, p.VFs)
	}
}

// find is the claim with a UID; without devices where it is not prepared.
func find(known []Claim, uid types.UID) Claim {
	if i := slices.IndexFunc(known, func(c Claim) bool { return c.UID == uid }); i >= 0 {
		return known[i]
	}
	return Claim{UID: uid}
}

// inGroup are the devices that go to the containers of a group.
func inGroup(claims []Claim, group string) []Prepared {
	var devices []Prepared
	for _, c := range claims {
		for _, d := range c.Devices {
			if d.Group == group {
				devices = append(devices, d)
			}
		}
	}
	return devices
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

// firsts are the first device of each group.
func (c Claim) firsts() []Prepared {
	var firsts []Prepared
	for _, d := range c.Devices {
		if !slices.ContainsFunc(firsts, func(f Prepared) bool { return f.Group == d.Group }) {
			firsts = append(firsts, d)
		}
	}
	return firsts
}

// group names the group of a request; "" where the claim does not have it.
func (c Claim) group(request string) string {
	for _, d := range c.Devices {
		if d.request() == request {
			return d.Group
		}
	}
	return ""
}

// boundBy returns the VFs of claims, by device of the pool: see Preparer.Bound.
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

// results returns the devices of this driver in a claim's allocation.
func results(claim *resourceapi.ResourceClaim) []resourceapi.DeviceRequestAllocationResult {
	if claim.Status.Allocation == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(claim.Status.Allocation.Devices.Results),
		func(r resourceapi.DeviceRequestAllocationResult) bool { return r.Driver != pool.Driver })
}

// isOf reports whether a prepared claim matches the claim's allocation.
func (c Claim) isOf(claim *resourceapi.ResourceClaim) bool {
	allocated := results(claim)
	if c.UID != claim.UID || len(allocated) == 0 || len(allocated) != len(c.Devices) {
		return false
	}
	for i, p := range c.Devices {
		if r := allocated[i]; p.Request != r.Request || p.Pool != r.Pool || p.Device != r.Device {
			return false
		}
	}
	return true
}
