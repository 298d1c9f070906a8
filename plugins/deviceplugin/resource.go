// SPDX-License-Identifier: Apache-2.0

// Package deviceplugin implements the kubelet's device plugin API for any hardware: a [Resource] describes
// the devices, and [Server] serves them. Packages gpu and rdma are resources, independent of each other, and
// meet only in package coordination.
//
//	Run ─┬─ Resource.Watch ──▶ broadcast ──▶ every ListAndWatch stream gets the current list
//	     ├─ folder: a change in device-plugins/ triggers the checks
//	     └─ stayRegistered: wait for kubelet.sock ─▶ new socket ─▶ serve ─▶ Register ─▶ attend
//	                         ▲                                                            │
//	                         └── pause, 100 ms to 30 s; none for a new kubelet.sock ◀─────┘
//
// The function attend returns when the stream has ended, kubelet.sock is new, the plugin's own socket is
// gone, or another plugin has taken over and is gone (guard.go).
//
// If the kubelet's plugin watcher finds the plugin (folder.go), the server does not wait for kubelet.sock:
// it serves the new socket in plugins_registry, and the kubelet connects when it starts.
//
// Three rules protect the kubelet and its pods. A listed device stays listed, as unhealthy, until the kubelet
// does not need it: from 1.34 on the kubelet crashes if a device vanishes while a container holds it
// (Keep in resource.go). GetPreferredAllocation never fails and takes at most 100 ms, because
// an error fails the pod and a delay stops all pod starts of the node (prefer.go). A socket name is never
// reused, because a kubelet from 1.37 on never forgets a name whose registration failed (folder.go).
//
// # The life of an allocation
//
// A container asks for two GPUs and two VFs. The kubelet visits the two resources in random order, one after
// the other; here the GPUs come first.
//
//	kubelet                deviceplugin.Server        gpu.Plugin, rdma.Plugin        coordination
//	   │                            │                            │                          │
//	   │                            │ ◀── publish(devices) ───── │ ──── Member.Publish ───▶ │ once, and on
//	   │ ◀────── Register ───────── │                            │                          │ every change
//	   │ ── ListAndWatch ─────────▶ │                            │                          │
//	   │ ◀─ devices, sorted by ID ─ │                            │                          │
//	   ┆                            ┆                            ┆                          ┆
//	   │ ── GetPreferred- ────────▶ │ ── Prefer, 80 ms ────────▶ │ ──── Member.Prefer ────▶ │ which pod? what
//	   │    Allocation: 2 of 8 GPUs │                            │                          │ is free? choose
//	   │ ◀─ two GPUs, always ────── │ ◀───────────────────────── │ ◀─── two GPUs ────────── │ GPUs and VFs;
//	   │                            │    repaired when wrong     │                          │ keep the VFs as
//	   │                            │    or late                 │                          │ a plan
//	   │ ── Allocate: two GPUs ───▶ │ ── Allocate ─────────────▶ │ ──── Member.Allocated ─▶ │ who has what
//	   │ ◀─ device nodes ────────── │ ◀── answer, in order ───── │ ◀─── their order ─────── │
//	   ┆                            ┆                            ┆                          ┆
//	   │ ── the same two calls for the VFs ────────────────────▶ │ ────────────────────────▶│ the plan: a VF on
//	   │ ◀────────────────────────────────────────────────────── │ ◀────────────────────────│ each GPU's switch
//	   ┆                            ┆                            ┆                          ┆
//	   │    the pod ends: the kubelet tells nobody. The devices are free once it offers them again (Prefer), or
//	   │    PodResources no longer shows them.
//
// The kubelet skips GetPreferredAllocation if there is nothing to choose, and may not follow
// GetPreferredAllocation with Allocate: the coordinator learns the devices from Allocate in the first case,
// and lets the plan expire in the second. An error of either call makes the pod fail permanently, so
// GetPreferredAllocation returns none, and Allocate only unavoidable ones.
//
// # When the kubelet restarts
//
// A restart removes the plugin's socket and recreates kubelet.sock. The kubelet also drops a plugin when the
// ListAndWatch stream ends, by the kubelet or by another instance of the same plugin. In each case
// deviceplugin.Server opens a new socket under a new name and registers again. Running containers keep their
// devices: the kubelet keeps the answers of Allocate in its checkpoint.
package deviceplugin

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/plugins/container"
)

// Device is a device as reported to the kubelet.
type Device struct {
	ID      string // at most 63 characters; part of the kubelet's state, so it never changes for a device
	Healthy bool
	Nodes   []int // NUMA nodes for the Topology Manager; empty means no preference
}

// Resource provides the devices of one resource name.
type Resource interface {
	// Name returns the resource name, "amd.com/gpu".
	Name() string
	// Watch calls publish with the complete list of devices, once at the start and after every change, until
	// ctx is done. A device that is gone stays in the list, unhealthy, while the kubelet may look it up.
	Watch(ctx context.Context, publish func([]Device)) error
	// Allocate gives a container the devices with these IDs. An error makes the kubelet fail the pod.
	Allocate(ctx context.Context, ids []string) (container.Edits, error)
}

// Preferrer is a Resource that has a preference among free devices. The server offers GetPreferredAllocation
// to the kubelet only for a Resource that implements Preferrer.
type Preferrer interface {
	// Prefer answers a question to the coordinator until ctx is done. An error means that there is no answer.
	Prefer(ctx context.Context, q *api.PreferRequest) (chosen []string, err error)
	// Alone answers a question that has no answer for a cause, by the plugin's own data and small files in
	// memory, without a call. Alone cannot fail, because an error from GetPreferredAllocation would make the
	// kubelet fail the pod. Prefer may still run meanwhile: neither changes the question.
	Alone(q *api.PreferRequest, cause error) (chosen []string)
}

// CheckName returns an error if the kubelet would reject the name of a resource (IsExtendedResourceName in
// pkg/apis/core/v1/helper/helpers.go).
func CheckName(name string) error {
	const quota = "requests." // prefix under which Kubernetes counts a resource in quotas
	if problems := content.IsLabelKey(quota + name); len(problems) > 0 || !strings.Contains(name, "/") {
		problems = append([]string{"want a name like vendor.com/kind"}, problems...)
		return fmt.Errorf("offer resource %q: %s", name, strings.Join(problems, "; "))
	}
	if strings.HasPrefix(name, quota) || strings.Contains(name, "kubernetes.io/") {
		return fmt.Errorf("offer resource %q: Kubernetes keeps kubernetes.io/ and %s for itself", name, quota)
	}
	return nil
}

// Keep merges the devices that are found into the known devices, both by ID. A known device that is no longer
// found stays, as gone converts it: from 1.34 on the kubelet process crashes when a device vanishes that a
// container holds or is just getting (allDevices is accessed without a check in
// pkg/kubelet/cm/devicemanager/manager.go). Keep changes neither map.
func Keep[D any](known, found map[string]D, gone func(D) D) map[string]D {
	all := make(map[string]D, max(len(known), len(found)))
	for id, d := range known {
		if _, there := found[id]; !there {
			all[id] = gone(d)
		}
	}
	maps.Copy(all, found)
	return all
}

// RegistrationObserver receives events of a Server. Its methods must return immediately.
type RegistrationObserver interface {
	// Offered: the resource has devices, so the kubelet should know it; Registered: the kubelet opened the
	// device list stream; Unregistered: the kubelet no longer uses this plugin. The server registers again
	// when another plugin that took over the resource is gone.
	Offered(resource string)
	Registered(resource string)
	Unregistered(resource string, cause error)
	// Preferred: a GetPreferredAllocation was answered.
	Preferred(resource string, took time.Duration)
}

// unobserved is a RegistrationObserver that does nothing.
type unobserved struct{}

func (unobserved) Offered(string)                  {}
func (unobserved) Registered(string)               {}
func (unobserved) Unregistered(string, error)      {}
func (unobserved) Preferred(string, time.Duration) {}

// broadcast holds the current device list. Every reader gets the current list; readers may skip intermediate
// lists.
type broadcast struct {
	mu        sync.Mutex
	devices   map[string]Device
	published bool
	changed   system.Signal // raised by the next publish
	told      []fingerprint // of the lists since the one that the kubelet last had, the newest last
}

// fingerprint identifies the healthy devices of a list: a hash of their IDs.
type fingerprint [sha256.Size]byte

// mostTold limits the number of fingerprints of lists that the kubelet has not applied yet.
const mostTold = 1000

// standing describes which list the kubelet has applied.
type standing int

const (
	elsewhere standing = iota // the kubelet has an unknown list, or a list that must not be current
	behind                    // the kubelet has an earlier list
	upToDate                  // the kubelet has the current list
)

func newFingerprint(ids []string) fingerprint {
	return sha256.Sum256([]byte(strings.Join(slices.Sorted(slices.Values(ids)), "\x00")))
}

// publish replaces the list.
func (b *broadcast) publish(devices []Device) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.devices, b.published = make(map[string]Device, len(devices)), true
	for _, d := range devices {
		d.Nodes = slices.Clone(d.Nodes)
		b.devices[d.ID] = d
	}
	b.told = append(b.told, newFingerprint(b.healthy()))
	b.told = b.told[max(0, len(b.told)-mostTold):]
	b.changed.Raise()
}

// healthy returns the healthy devices of the current list. The mutex must be held.
func (b *broadcast) healthy() []string {
	var ids []string
	for id, d := range b.devices {
		if d.Healthy {
			ids = append(ids, id)
		}
	}
	return ids
}

// begin records that the kubelet applies lists from the beginning.
func (b *broadcast) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = []fingerprint{newFingerprint(nil), newFingerprint(b.healthy())}
}

// standing returns the standing of a kubelet with these allocatable devices. The kubelet applies lists in
// order, so it does not return to a list before the one that it has applied.
func (b *broadcast) standing(has []string) standing {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := newFingerprint(has)
	switch {
	case now == newFingerprint(b.healthy()):
		b.told = []fingerprint{now}
		return upToDate
	case slices.Contains(b.told, now):
		return behind
	default:
		return elsewhere
	}
}

// latest returns the current list sorted by ID, whether a list exists, and a channel that is closed when the
// list is no longer current.
func (b *broadcast) latest() (list *v1beta1.ListAndWatchResponse, published bool, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	list = &v1beta1.ListAndWatchResponse{Devices: make([]*v1beta1.Device, 0, len(b.devices))}
	for _, d := range slices.SortedFunc(maps.Values(b.devices),
		func(d, e Device) int { return cmp.Compare(d.ID, e.ID) }) {
		list.Devices = append(list.Devices, wireDevice(d))
	}
	return list, b.published, b.changed.Next()
}

// wireDevice converts a device. A device without NUMA nodes has no topology: any TopologyInfo, even with node
// -1, makes the Topology Manager reject the pod under policy restricted
// (pkg/kubelet/cm/devicemanager/topology_hints.go).
func wireDevice(d Device) *v1beta1.Device {
	wire := &v1beta1.Device{ID: d.ID, Health: v1beta1.Unhealthy}
	if d.Healthy {
		wire.Health = v1beta1.Healthy
	}
	if len(d.Nodes) > 0 {
		wire.Topology = &v1beta1.TopologyInfo{}
	}
	for _, node := range d.Nodes {
		wire.Topology.Nodes = append(wire.Topology.Nodes, &v1beta1.NUMANode{ID: int64(node)})
	}
	return wire
}
