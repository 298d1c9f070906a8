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

	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/dra/inventory"
	"github.com/tandem-k8s/tandem/dra/pool"
)

// State is what the node has to hand out now, and under which names.
type State struct {
	Machine inventory.Machine
	Pool    pool.Pool
	Unread  error // why it is not known who has which devices; nil where it is
}

// Claim is a claim that is prepared.
type Claim struct {
	UID       types.UID  `json:"uid"`
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	Devices   []Prepared `json:"devices"` // none where all that is known of it is that it has a CDI spec
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
