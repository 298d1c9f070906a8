// SPDX-License-Identifier: Apache-2.0

// Package history keeps the latest decisions, which explain the devices of containers to people.
package history

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Decision is a GetPreferredAllocation with the Allocate that followed, or an Allocate without a preceding
// GetPreferredAllocation. In a log, only the container and the Allocate change.
type Decision struct {
	At          time.Time
	Took        time.Duration
	Container   *kubelet.Container // nil if unknown
	PodUID      string             // "" if unknown
	Resource    string
	Size        int      // number of requested devices
	Available   int      // number of offered devices
	MustInclude []string // offered devices that the answer must contain
	HasQuestion bool     // false for an Allocate without a preceding GetPreferredAllocation
	Known       string   // the requests of the container and their source, for people
	Tree        *topology.Tree
	Request     placement.Request
	Choice      placement.Choice
	Chosen      []string            // preferred devices of the resource
	Planned     map[string][]string // planned devices of other resources
	Allocated   []string            // devices of the Allocate
	AllocatedAt time.Time           // time of the Allocate; zero before
	Refusal     string              // the reason of a failed Allocate; "" for none
	Held        bool                // the container has the devices still; set by Of

	compact   *compactRequest      // replaces Request if that is long
	message   func() *api.Decision // the wire format without container and Allocate
	cost      int                  // bytes, without the tree
	treeCost  int                  // bytes of the tree, which other decisions may share
	shortened bool                 // Tree, Request and Choice are dropped
}

// Log holds the latest decisions and those of all existing containers, the oldest first, within [Most] and
// [MostBytes]. A Log is not safe for concurrent use.
type Log struct {
	// IsHeld reports whether a container of a pod holds the device; an empty UID means any pod. With nil, no
	// container holds a device.
	IsHeld func(uid, resource, id string) bool

	entries []*Decision
	newest  map[deviceKey]*Decision // the latest decision of each first device
}

// holdsDevices reports whether the container of a decision still holds its devices.
func (d *Log) holdsDevices(e *Decision) bool {
	first, ok := e.firstDevice()
	return ok && d.newest[first] == e && d.IsHeld != nil && d.IsHeld(e.PodUID, first.resource, first.id)
}

// deviceKey identifies a device of the node.
type deviceKey struct{ resource, id string }

// firstDevice returns the first allocated device of a decision, or false if no device is allocated.
func (e *Decision) firstDevice() (deviceKey, bool) {
	if len(e.Allocated) == 0 || e.Refusal != "" {
		return deviceKey{}, false
	}
	return deviceKey{e.Resource, e.Allocated[0]}, true
}

// Add appends a decision. A full log first removes the oldest decision whose container no longer exists; if
// all containers exist, the oldest decision.
func (d *Log) Add(e *Decision) {
	if len(d.entries) == Most {
		d.evict(Most)
	}
	if isLong(e.Request) {
		e.compact, e.Request = newCompactRequest(e.Request, e.Choice), placement.Request{}
	}
	original := *e
	e.message = sync.OnceValue(func() *api.Decision { return original.encode(true) })
	e.cost, e.treeCost = e.bytes(), d.treeCost(e)
	d.entries = append(d.entries, e)
	d.fit()
}

// Allocation is an answered Allocate.
type Allocation struct {
	At        time.Time
	Container *kubelet.Container // nil if unknown
	PodUID    string             // "" if unknown
	Resource  string
	IDs       []string // in the order for the container
	Refusal   string   // "" for none
	Asked     bool     // the Allocate follows the latest GetPreferredAllocation
}

// RecordAllocation records an Allocate in the decision of the GetPreferredAllocation that it follows,
// otherwise in a new decision.
func (d *Log) RecordAllocation(a Allocation) {
	var e *Decision
	if n := len(d.entries); n > 0 {
		e = d.entries[n-1]
	}
	if e == nil || !a.Asked {
		e = &Decision{At: a.At, Resource: a.Resource, Size: len(a.IDs)}
		d.Add(e)
	}
	if e.Container == nil {
		e.Container = a.Container
	}
	e.PodUID = cmp.Or(e.PodUID, a.PodUID)
	e.AllocatedAt, e.Allocated, e.Refusal = a.At, slices.Clone(a.IDs), a.Refusal
	d.index(e)
}

// index makes a decision the latest of its first device.
func (d *Log) index(e *Decision) {
	if first, ok := e.firstDevice(); ok {
		if d.newest == nil {
			d.newest = map[deviceKey]*Decision{}
		}
		d.newest[first] = e
	}
}

// Resolve sets unknown containers of decisions from the kubelet's devices.
func (d *Log) Resolve(view kubelet.View) {
	for e, container := range d.resolve(view) {
		e.Container = &container
	}
}

// resolve returns the containers of decisions without a known container, from the kubelet's devices. Only the
// latest decision of a device gets a container, the first by name if several containers share the device.
func (d *Log) resolve(view kubelet.View) map[*Decision]kubelet.Container {
	resolved := map[*Decision]kubelet.Container{}
	for container, devices := range view.Containers {
		for resource, ids := range devices {
			for _, id := range ids {
				e := d.newest[deviceKey{resource, id}]
				if e == nil || e.Container != nil {
					continue
				}
				if first, known := resolved[e]; !known || container.String() < first.String() {
					resolved[e] = container
				}
			}
		}
	}
	return resolved
}

// All returns copies of all decisions, the oldest first.
func (d *Log) All() []Decision {
	all := make([]Decision, 0, len(d.entries))
	for _, e := range d.entries {
		all = append(all, *e)
	}
	return all
}

// Of returns copies of the decisions for containers that accept reports true for, the oldest first. The view
// has the containers of decisions without a known container; the log keeps these decisions unchanged. Of sets
// Held.
func (d *Log) Of(view kubelet.View, accept func(kubelet.Container) bool) []Decision {
	resolved := d.resolve(view)
	var found []Decision
	for _, e := range d.entries {
		of := *e
		of.Held = d.holdsDevices(e)
		if container, ok := resolved[e]; ok {
			of.Container = &container
		}
		if of.Container != nil && accept(*of.Container) {
			found = append(found, of)
		}
	}
	return found
}

// OfRunning returns copies of the decisions whose containers still hold their devices, the oldest first.
func (d *Log) OfRunning() []Decision {
	var living []Decision
	for _, e := range d.entries {
		if d.holdsDevices(e) {
			living = append(living, *e)
		}
	}
	return living
}
