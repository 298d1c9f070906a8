// SPDX-License-Identifier: Apache-2.0

// Package devicemanager is the kubelet's device manager as pure functions: the devices of a container, the
// preceding GetPreferredAllocation calls to the device plugins, and the refusal of pods
// (pkg/kubelet/cm/devicemanager/manager.go). Package model chooses the NUMA nodes.
//
// An [Admission] admits one pod. [Others] contains the decisions outside the device manager: the answers of
// plugins, the CPU and memory managers, and the random choice of devices. A [View] has what a container
// prefers.
//
// The scheduler's verdict (coordination/verdict) and the simulation (test/simulate) are adapters of the
// device manager. A test compares it with the kubelet's own managers (test/kubernetes/kubelet). The daemons
// do not link the package.
package devicemanager

import (
	"slices"

	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
)

// Admission is the admission of one pod, as in the kubelet's device manager
// (pkg/kubelet/cm/devicemanager/manager.go): container after container, each with its NUMA nodes, the
// preceding GetPreferredAllocation calls to the device plugins, and then its devices.
type Admission struct {
	Node       *Devices
	Kubelet    model.TopologyManager
	Containers []model.Container // in the order of admission: init containers first
	Others     Others
	// Managed reports whether Others has CPU or memory managers, which also align containers without devices.
	Managed bool
	// VerdictOnly omits the devices of the last container with a device request: the verdict depends on these
	// devices only if a plugin refuses the allocation.
	VerdictOnly bool

	Healthy  Set
	Taken    Set // by other pods, and by containers of this pod
	Reusable Set // left by init containers of the pod
}

// Refusal is the kubelet's reason for the refusal of a pod.
type Refusal struct {
	Container int // -1 for the pod as a whole, under scope pod
	Requests  model.Requests
	// If both fields are nil, the Topology Manager finds no NUMA nodes for the requests.
	Shortage *Shortage
	Err      error // of Others.Allocate
}

// Shortage is a resource with too few devices.
type Shortage struct {
	model.Request
	Free    int
	Healthy bool // the resource has a healthy device
}

// Admit admits the pod as the kubelet does: container after container gets NUMA nodes (under scope pod the
// NUMA nodes of the whole pod), and then devices. Admit changes Taken and Reusable, and returns nil if the
// pod is admitted.
func (a *Admission) Admit() *Refusal {
	var best model.Hint
	if a.Kubelet.ScopePod {
		total, admitted := model.Total(a.Containers), false
		best, admitted = a.Merge(-1, total)
		if !admitted {
			return &Refusal{Container: -1, Requests: total}
		}
	}
	for i := range a.Containers {
		requests := a.Containers[i].Requests
		if len(requests) == 0 && !a.Managed {
			continue
		}
		if !a.Kubelet.ScopePod {
			admitted := false
			best, admitted = a.Merge(i, requests)
			if !admitted {
				return &Refusal{Container: i, Requests: requests}
			}
		}
		if refusal := a.admitContainer(i, best); refusal != nil {
			return refusal
		}
	}
	return nil
}

// admitContainer gives a container its devices, then its CPUs and memory.
func (a *Admission) admitContainer(i int, best model.Hint) *Refusal {
	c := &a.Containers[i]
	if short := a.Shortage(c.Requests, true); short != nil {
		return &Refusal{Container: i, Requests: c.Requests, Shortage: short}
	}
	var devices Set
	if !a.VerdictOnly || !a.isLast(i) {
		devices = a.Node.NewSet()
		nodes := a.Kubelet.Rule.Affinity(best)
		for _, r := range c.Requests {
			if r.Count > 0 {
				devices.Include(a.devicesToAllocate(i, r, nodes, devices))
			}
		}
	}
	if err := a.Others.Allocate(i, best, devices); err != nil {
		return &Refusal{Container: i, Requests: c.Requests, Err: err}
	}
	a.Taken.Include(devices)
	if c.Role == model.Init {
		a.Reusable.Include(devices)
	} else {
		a.Reusable.Exclude(devices)
	}
	return nil
}

// isLast reports whether no later container requests devices.
func (a *Admission) isLast(i int) bool {
	for _, c := range a.Containers[i+1:] {
		if len(c.Requests) > 0 {
			return false
		}
	}
	return true
}

// Merge returns the hint of the Topology Manager for the requests of a container, or of the pod if container
// is -1; false for a refusal.
func (a *Admission) Merge(container int, requests model.Requests) (best model.Hint, admitted bool) {
	rule := &a.Kubelet.Rule
	if rule.Policy == model.PolicyNone {
		return model.Hint{}, true
	}
	demands, free, reusable := make([]model.Demand, 0, 4), a.allocatableDevices(), a.reusableBy(container >= 0)
	for _, r := range requests {
		if resource := &a.Node.Resources[r.Resource]; resource.Hinted {
			demands = append(demands, resource.Demand(r.Count, free, reusable))
		}
	}
	if !a.Managed {
		return rule.Merge(demands)
	}
	return rule.Merge(demands, a.Others.Hints(container)...)
}

// Demand returns the input of the Topology Manager for a request. Devices that init containers have left
// count for a container, but not for the pod as a whole.
func (a *Admission) Demand(r model.Request, ofContainer bool) model.Demand {
	return a.Node.Resources[r.Resource].Demand(r.Count, a.allocatableDevices(), a.reusableBy(ofContainer))
}

func (a *Admission) reusableBy(ofContainer bool) Set {
	if ofContainer {
		return a.Reusable
	}
	return nil
}

// Shortage returns the first resource of the node with fewer devices than requested; nil for none.
func (a *Admission) Shortage(requests model.Requests, ofContainer bool) *Shortage {
	free := a.allocatableDevices()
	free.Include(a.reusableBy(ofContainer))
	var first *Shortage
	for _, r := range requests {
		all := a.Node.Resources[r.Resource].All
		have, healthy := free.Common(all), a.Healthy.Common(all) > 0
		if (have < r.Count || !healthy) && (first == nil || r.Resource < first.Resource) {
			first = &Shortage{r, have, healthy}
		}
	}
	return first
}

// allocatableDevices returns the devices that the kubelet can allocate.
func (a *Admission) allocatableDevices() Set { return a.Healthy.Difference(a.Taken) }

// Question is a GetPreferredAllocation of the kubelet. AvailableDeviceIDs are Must and Free.
type Question struct {
	Resource int
	Must     Set // MustIncludeDeviceIDs
	Free     Set // the other devices to choose from
	Size     int // AllocationSize, Must included
	// Not part of the kubelet's call: the container's devices of other resources, and its NUMA nodes.
	Allocated Set
	Nodes     model.Mask
}

// Available returns AvailableDeviceIDs.
func (q *Question) Available() Set {
	s := q.Must.Clone()
	s.Include(q.Free)
	return s
}

// Others are the other managers of the kubelet, and the plugins, for an [Admission]. A container is
// identified by its index in the pod.
type Others interface {
	// Hints returns the hints of the CPU and memory managers for a container, or for the whole pod if container
	// is -1 (scope pod).
	Hints(container int) []model.Hints
	// Prefer returns the answer of the plugin. The kubelet ignores devices that the question does not offer, and
	// completes an answer with too few devices.
	Prefer(container int, q Question) Set
	// Pick returns count devices of a set. The kubelet selects random devices (the order of a Go map).
	Pick(of Set, count int) Set
	// Allocate is called with all devices of a container, best being its hint: the plugins and the CPU and
	// memory managers allocate. An error refuses the pod.
	Allocate(container int, best model.Hint, devices Set) error
}

// devicesToAllocate returns the devices of one resource for a container (devicesToAllocate): first the
// devices that init containers have left, then free devices on the NUMA nodes of the container, then the
// remaining free devices. If a choice exists, the plugin is called. Enough devices have to be available.
func (a *Admission) devicesToAllocate(container int, request model.Request, nodes model.Mask, given Set) Set {
	r := &a.Node.Resources[request.Resource]
	got := a.Reusable.Intersection(r.All)
	missing := request.Count - got.Len()
	if missing <= 0 {
		return a.fillFrom(a.Node.NewSet(), request.Count, got)
	}
	free := a.allocatableDevices().Intersection(r.All)
	aligned := r.Aligned(free, nodes)
	if missing < aligned.Len() {
		q := Question{request.Resource, got, aligned, request.Count, given, nodes}
		return a.fillFrom(got, request.Count, a.askPlugin(container, q), aligned)
	}
	got.Include(aligned)
	if missing == aligned.Len() {
		return got
	}
	free.Exclude(aligned)
	q := Question{request.Resource, got, free, request.Count, given, nodes}
	rest := []Set{a.askPlugin(container, q), free}
	if nodes != 0 { // devices on other nodes before devices without a node (filterByAffinity)
		rest = slices.Insert(rest, 1, r.Aligned(free, ^model.Mask(0)))
	}
	return a.fillFrom(got, request.Count, rest...)
}

func (a *Admission) askPlugin(container int, q Question) Set {
	return a.Others.Prefer(container, q).Intersection(q.Free)
}

// fillFrom adds devices to got up to count, from one list after the other. If a list has more devices than
// necessary, fillFrom selects any of the list's devices.
func (a *Admission) fillFrom(got Set, count int, lists ...Set) Set {
	for _, list := range lists {
		missing := count - got.Len()
		if missing == 0 {
			break
		}
		rest := list.Difference(got)
		if rest.Len() > missing {
			rest = a.Others.Pick(rest, missing)
		}
		got.Include(rest)
	}
	return got
}
