// SPDX-License-Identifier: Apache-2.0

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
	// Prefer returns size of the available devices, including the mustInclude ones. It cannot fail, because
	// an error from GetPreferredAllocation would make the kubelet fail the pod. It answers within 100 ms.
	Prefer(ctx context.Context, available, mustInclude []string, size int) []string
	// Alone is Prefer based only on the plugin's own data: it makes no calls and does not wait. The server
	// calls it if Prefer has not answered in time, possibly while Prefer still runs.
	Alone(available, mustInclude []string, size int) []string
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
