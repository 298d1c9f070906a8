// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"slices"

	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// Question is a GetPreferredAllocation of the kubelet. AvailableDeviceIDs are Must and Free.
type Question struct {
	Resource int
	Must     Set // MustIncludeDeviceIDs
	Free     Set // the other devices to choose from
	Size     int // AllocationSize, Must included
	// Not part of the kubelet's call: the container's devices of other resources, and its NUMA nodes.
	Allocated Set
	Nodes     hints.Mask
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
	Hints(container int) []hints.List
	// Prefer returns the answer of the plugin. The kubelet ignores devices that the question does not offer, and
	// completes an answer with too few devices.
	Prefer(container int, q Question) Set
	// Pick returns count devices of a set. The kubelet selects random devices (the order of a Go map).
	Pick(of Set, count int) Set
	// Allocate is called with all devices of a container, best being its hint: the plugins and the CPU and
	// memory managers allocate. An error refuses the pod.
	Allocate(container int, best hints.Hint, devices Set) error
}

// allocate returns the devices of one resource for a container (devicesToAllocate): first the devices that
// init containers have left, then free devices on the NUMA nodes of the container, then the remaining free
// devices. If a choice exists, the plugin is called. Enough devices have to be available.
func (a *Admission) allocate(container int, request Request, nodes hints.Mask, given Set) Set {
	r := &a.Node.Resources[request.Resource]
	got := a.Reusable.Intersection(r.All)
	missing := request.Count - got.Len()
	if missing <= 0 {
		return a.fill(a.Node.NewSet(), request.Count, got)
	}
	free := a.free().Intersection(r.All)
	aligned := r.Aligned(free, nodes)
	if missing < aligned.Len() {
		q := Question{request.Resource, got, aligned, request.Count, given, nodes}
		return a.fill(got, request.Count, a.prefer(container, q), aligned)
	}
	got.Include(aligned)
	if missing == aligned.Len() {
		return got
	}
	free.Exclude(aligned)
	q := Question{request.Resource, got, free, request.Count, given, nodes}
	rest := []Set{a.prefer(container, q), free}
	if nodes != 0 { // devices on other nodes before devices without a node (filterByAffinity)
		rest = slices.Insert(rest, 1, r.Aligned(free, ^hints.Mask(0)))
	}
	return a.fill(got, request.Count, rest...)
}

func (a *Admission) prefer(container int, q Question) Set {
	return a.Others.Prefer(container, q).Intersection(q.Free)
}

// fill adds devices to got up to count, from one list after the other. If a list has more devices than
// necessary, fill selects any of the list's devices.
func (a *Admission) fill(got Set, count int, lists ...Set) Set {
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
