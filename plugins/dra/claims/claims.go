// SPDX-License-Identifier: Apache-2.0

// Package claims determines and records the devices of claims, until the claims are unprepared: the GPUs and
// VFs, their CDI spec, and the entries in the claim's status.
//
//	claims, pool ──decide──▶ Claim ──▶ checkpoint (claims.json)   the assigned devices
//	     pod ──containers──▶   │
//	                           └─────▶ CDI spec of the claim       the edits for its containers
//	                                   pairs files, device-info files
//
// Decisions are pure functions of the node's devices, the scheduler's allocation and the prepared claims. A
// pair or a bundle is assigned as named. A VF that was allocated by itself next to a GPU is a token: another
// VF may be assigned in its place, preferably the GPU's reserved one, which no other claim can get as long as
// the claim has the GPU. The token's own VF stays idle, and unavailable to others as long as the claim has
// the token. A VF of a pair, or alone, that another claim has is replaced by a free one of its switch.
//
// Containers get the same edits as from the device plugins, by the same code, as a CDI device. All requests
// of one container carry the same, complete environment, because a container keeps only one of several equal
// variables in its CDI devices.
//
// The order of effects allows the end of the process at any time. Prepare writes the checkpoint, durably,
// then the files, then answers; unprepare removes the files, then writes the checkpoint. [Preparer.Restore],
// or a repeated call of the kubelet, repairs anything in between. A claim is reported as prepared only while
// its files exist, and no device of its containers is gone: then its CDI spec has no device, so that no
// container starts with nodes or names that are another device's by now. Two processes may share a folder:
// each reads the checkpoint again under a lock.
package claims

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
)

// State has the node's current devices, and their published names.
type State struct {
	Machine pool.Machine
	Pool    pool.Pool
	Unread  error // reason for unknown holders of devices; nil if known
}

// findDevice returns the device that a claim was allocated, also if it is not published any more, and reports
// whether the node has it. A request only for GPUs gets no VF.
func (s State) findDevice(
	claim *resourceapi.ResourceClaim, result resourceapi.DeviceRequestAllocationResult,
) (pool.Device, bool) {
	device, ok := s.Pool.Find(s.Machine, result.Device)
	switch {
	case device.Type != pool.TypeGPUVF:
		return device, ok
	case asksForGPU(claim, result.Request):
		device.VFs = nil
		return device, ok
	default:
		return device, len(device.VFs) > 0
	}
}

// Claim is a prepared claim.
type Claim struct {
	UID       types.UID  `json:"uid"`
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	Devices   []Prepared `json:"devices"`
	Pods      []Pod      `json:"pods,omitempty"`
	// Required means that the claim or its class requires alignment: of all its containers, also of later ones.
	Required bool `json:"required,omitempty"`
}

// Pod is a pod for which a claim was reserved when prepared.
type Pod struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
}

// Prepared is an allocated device, with the GPUs and VFs assigned for it.
type Prepared struct {
	Request string   `json:"request"` // "pairs/near" for a subrequest of a request
	Pool    string   `json:"pool"`    // of the node, in its ResourceSlices
	Device  string   `json:"device"`  // its name in the pool
	GPUs    []string `json:"gpus,omitempty"`
	VFs     []string `json:"vfs,omitempty"`   // the assigned VFs
	Token   string   `json:"token,omitempty"` // the VF that the device names, if another VF is assigned
	With    string   `json:"with,omitempty"`  // of a GPU by itself: its reserved VF, assigned for a token
	// Units are the names of the units of devices with an ID that is no unit's name, by ID: another program, and
	// a later boot, have other IDs; see Present.
	Units map[string]string `json:"units,omitempty"`
	// Parts is the number of partitions of the GPUs' card, of AMD: a card with another number has other GPUs,
	// under the same names; 0 for unknown.
	Parts int      `json:"parts,omitempty"`
	Admin bool     `json:"admin,omitempty"` // admin access: other claims may have the device too
	Group string   `json:"group"`           // requests of one group go to the same containers
	CDI   []string `json:"cdi,omitempty"`   // CDI devices for container runtimes, once per request
}

// NewClaim returns a claim without devices, and the pods for which it is reserved.
func NewClaim(claim *resourceapi.ResourceClaim) Claim {
	return Claim{UID: claim.UID, Namespace: claim.Namespace, Name: claim.Name, Pods: PodsOf(claim)}
}

// String names the claim for people: "claim team/train-0".
func (c Claim) String() string { return "claim " + c.Namespace + "/" + c.Name }

// isIn reports whether claims contain the claim.
func (c Claim) isIn(claims []Claim) bool {
	_, is := FindClaim(claims, c.UID)
	return is
}

// requestName returns the request of the claim, without the name of a subrequest.
func (p Prepared) requestName() string {
	request, _, _ := strings.Cut(p.Request, "/")
	return request
}

// Holds returns the devices that no other claim may get, including idle ones: none for admin access.
func (p Prepared) Holds() []string {
	if p.Admin {
		return nil
	}
	return append(slices.Clone(p.GPUs), p.allVFs()...)
}

// allVFs returns the assigned VFs, and the idle VF of a token.
func (p Prepared) allVFs() []string {
	if p.Token == "" {
		return p.VFs
	}
	return append(slices.Clone(p.VFs), p.Token)
}

// FindClaim returns the claim with a UID, without devices if the claim is not prepared.
func FindClaim(known []Claim, uid types.UID) (c Claim, isPrepared bool) {
	if i := slices.IndexFunc(known, func(c Claim) bool { return c.UID == uid }); i >= 0 {
		return known[i], true
	}
	return Claim{UID: uid}, false
}

// inGroup returns the devices of a group's containers.
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

// Answer returns the answer to the kubelet for a prepared claim.
func (c Claim) Answer() []kubeletplugin.Device {
	devices := make([]kubeletplugin.Device, 0, len(c.Devices))
	for _, d := range c.Devices {
		devices = append(devices, kubeletplugin.Device{
			Requests: []string{d.Request}, PoolName: d.Pool, DeviceName: d.Device, CDIDeviceIDs: d.CDI,
		})
	}
	return devices
}

// firstOfGroups returns the first device of each group.
func (c Claim) firstOfGroups() []Prepared {
	var firsts []Prepared
	for _, d := range c.Devices {
		if !slices.ContainsFunc(firsts, func(f Prepared) bool { return f.Group == d.Group }) {
			firsts = append(firsts, d)
		}
	}
	return firsts
}

// Bound returns the devices of claims, in the form of pool.Options:
//   - the actual VFs, by device of the pool: for a pair its VF, for a VF the assigned VF, and for a single
//     GPU the reserved VF that was assigned for a token;
//   - the devices of the pool through which claims have GPUs and VFs, by ID of the GPU or VF.
func Bound(claims []Claim) (bound, inUse map[string]string) {
	bound, inUse = map[string]string{}, map[string]string{}
	for _, c := range claims {
		for _, d := range c.Devices {
			for _, id := range d.Holds() {
				inUse[id] = d.Device
			}
			switch {
			case d.Admin:
			case len(d.VFs) == 1 && len(d.GPUs) <= 1:
				bound[d.Device] = d.VFs[0]
			case d.With != "":
				bound[d.Device] = d.With
			}
		}
	}
	return bound, inUse
}

// driverResults returns the devices of this driver in a claim's allocation.
func driverResults(claim *resourceapi.ResourceClaim) []resourceapi.DeviceRequestAllocationResult {
	if claim.Status.Allocation == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(claim.Status.Allocation.Devices.Results),
		func(r resourceapi.DeviceRequestAllocationResult) bool { return r.Driver != pool.Driver })
}

// isOf reports whether a prepared claim matches the claim's allocation.
func (c Claim) isOf(claim *resourceapi.ResourceClaim) bool {
	allocated := driverResults(claim)
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

// neededPods returns the pods of a call if the decision depends on them; otherwise none. If they cannot be
// read, the claims of each container are unknown: the kubelet retries after the error.
func (r request) neededPods(state State) ([]*corev1.Pod, error) {
	isKnown := isPlain(r.called) && !canBeApart(state, r.called)
	if len(r.due) == 0 || isKnown && areAlone(r.known, r.called) {
		return nil, nil
	}
	pods, err := r.pods.Get()
	if err != nil {
		return nil, err
	}
	if len(pods) == 0 && !isKnown {
		return nil, fmt.Errorf("prepare claim %s/%s: it is not known which of its requests go to which container: "+
			"it is reserved for no pod that exists", r.called[0].Namespace, r.called[0].Name)
	}
	return pods, nil
}

// PodsOf returns the pods for which claims are reserved, without duplicates.
func PodsOf(claims ...*resourceapi.ResourceClaim) (pods []Pod) {
	for _, claim := range claims {
		for _, reserved := range claim.Status.ReservedFor {
			pod := Pod{Name: reserved.Name, UID: reserved.UID}
			if reserved.APIGroup == "" && reserved.Resource == "pods" && !slices.Contains(pods, pod) {
				pods = append(pods, pod)
			}
		}
	}
	return pods
}

// reservedFor returns the pods of a list for which a claim is reserved.
func reservedFor(claim *resourceapi.ResourceClaim, pods []*corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool {
		return !slices.ContainsFunc(claim.Status.ReservedFor,
			func(r resourceapi.ResourceClaimConsumerReference) bool { return r.UID == pod.UID })
	})
}

// canBeApart reports whether claims have a GPU and a VF that were allocated separately.
func canBeApart(state State, claims []*resourceapi.ResourceClaim) bool {
	gpus, vfs, separate := false, false, false
	for _, claim := range claims {
		for _, result := range driverResults(claim) {
			device, _ := state.findDevice(claim, result)
			gpu, vf := len(device.GPUs) > 0, len(device.VFs) > 0
			gpus, vfs = gpus || gpu, vfs || vf
			separate = separate || gpu != vf // a pair is on one switch always
		}
	}
	return gpus && vfs && separate
}

// areAlone reports whether no other claim of the claims' namespace is prepared that a container of their pods
// could use too.
func areAlone(known []Claim, claims []*resourceapi.ResourceClaim) bool {
	return !slices.ContainsFunc(known, func(c Claim) bool {
		isCalled := func(claim *resourceapi.ResourceClaim) bool { return claim.UID == c.UID }
		return c.Namespace == claims[0].Namespace && !slices.ContainsFunc(claims, isCalled)
	})
}
