// SPDX-License-Identifier: Apache-2.0

// Package holders finds the holders of a node's devices in the kubelet's own records: a pure function of the
// kubelet's device checkpoint, of PodResources List, of the living pods, and of the observed Allocates.
//
// # Records
//
// The kubelet writes down the devices of each container; any copy becomes stale. The checkpoint has all
// containers, init containers included, with the UIDs of their pods. The kubelet writes the checkpoint when a
// container has all its devices, before the next container's turn, and when a plugin's device list changes.
// The checkpoint therefore lacks the container in admission, and has pods that have ended since. List has the
// containers of active pods at this moment, init containers excepted, and no UIDs.
//
// # Holders
//
// A device has as holders
//
//   - each container of a living pod with the device in the checkpoint, or in an earlier one if the kubelet
//     has lost its records;
//   - each container with the device in List;
//   - the container of each Allocate of the device that is not over (Allocate).
//
// The kubelet's own list of pods decides whether a pod of the checkpoint is alive. While a kubelet that
// has just started adds its pods to the list, and without a list, names and devices in List identify the
// pods. An unidentified pod counts as alive: the containers can be init containers, which List never
// shows. Proofs of a pod's end are:
//
//   - the kubelet offers a device of the pod: the kubelet frees all devices of a pod at once;
//   - another pod has a device of the pod;
//   - List or the list of pods lacks the pod, and the same kubelet has listed the pod before (Known);
//   - a List or an offer has proved the end, and the same kubelet has written no checkpoint since: the
//     kubelet has freed the devices of the pod, and also a static pod that comes back gets others.
package holders

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
)

// Sources are the kubelet's records and further knowledge at one moment.
type Sources struct {
	Checkpoint kubelet.Reading[kubelet.Checkpoint]
	View       kubelet.Reading[kubelet.View] // of List
	Single     []kubelet.Pod                 // the pods of a View that is no List; nil for all pods
	Pods       kubelet.Reading[Pods]         // of a request source
	Known      map[string]Known              // names of pods from earlier searches, by UID
	Before     Holders                       // of the last search: for an unknown Checkpoint, and for names
	Unlisted   Holders                       // of the last search
	Looked     bool                          // List was read before
	ListedLife string                        // of the kubelet that answered the last List
	Allocates  []Allocate                    // observed, oldest first
	Question   *api.PreferRequest            // the current question; nil for none
	// Withheld are devices of its resource that the kubelet does not offer and would offer if they were free:
	// for the kubelet their pods are alive, although the pods may have ended.
	Withheld []string
	Listed   map[kubelet.Container]kubelet.Devices // by the last List; nil if unknown
	Life     string                                // identifies the running kubelet; "" if unknown
	Ended    bool                                  // ended pods count as holders
}

// Known is the name of a pod of the checkpoint, which has only UIDs.
type Known struct {
	Pod        kubelet.Pod
	Containers []string // by List: all except init containers
	Listed     bool     // List has shown the pod
	Admitted   bool     // the pod is newer than the last List, or that List did not show its name
	Life       string   // of the kubelet of that List
	Told       bool     // a request source has listed the pod
	Freed      moment   `json:",omitzero"` // when a List or an offer has proved the end of the pod; zero for never
}

// Pods are the living pods by UID, by the kubelet's own list.
type Pods struct {
	Names   map[string]kubelet.Pod
	Started map[string]bool // pods that a kubelet has admitted and started
	// All means that the list is complete: a pod that is not in the list has ended. A kubelet that has just
	// started adds its pods one by one: a pod that is not in an incomplete list has ended if the same kubelet
	// has listed the pod before.
	All bool
}

// Lack reports whether the absence of a pod from a list of a kubelet means that the pod has ended, by what
// is known of the pod from earlier lists.
func (p Pods) Lack(uid, life string, known Known) bool {
	_, listed := p.Names[uid]
	return !listed && (p.All || (known.Told || known.Admitted) && life != "" && known.Life == life)
}

// OfKubelet returns no pods of the kubelet's own list yet. The list must be read after the checkpoint, to
// contain all living pods of the checkpoint.
func OfKubelet() *Pods {
	return &Pods{Names: map[string]kubelet.Pod{}, Started: map[string]bool{}, All: true}
}

// Add adds a pod of the list, unless the pod has ended.
func (p *Pods) Add(pod *corev1.Pod) {
	if !kubelet.HasEnded(pod) {
		uid := string(pod.UID)
		p.Names[uid] = kubelet.Pod{Namespace: pod.Namespace, Name: pod.Name}
		p.Started[uid] = kubelet.HasStarted(pod)
	}
}

// Allocate is an observed Allocate call.
type Allocate struct {
	Resource string
	IDs      []string
	UID      string // of the pod, "" if unknown
	Pod      kubelet.Pod
	Name     string // of the container
	Anew     bool   // the kubelet offered the devices as free: not reused from an init container
	// Recorded identifies the kubelet's checkpoint at the time of the call; zero if unreadable.
	Recorded kubelet.Identity
	Life     string // of the kubelet; "" if unknown
}

// gives reports whether an Allocate contains a device.
func (a Allocate) gives(d kubelet.Device) bool {
	return a.Resource == d.Resource && slices.Contains(a.IDs, d.ID)
}

// Holder is a container with its devices. Unknown values are "".
type Holder struct {
	UID     string `json:",omitempty"`
	Pod     kubelet.Pod
	Name    string
	Devices kubelet.Devices
	Open    bool `json:",omitempty"` // in admission: the devices are not in the checkpoint yet
	Init    bool `json:",omitempty"` // known to be an init container
	// Life is of the kubelet that admitted the container, or whose checkpoint or List has it; "" if unknown.
	Life string `json:",omitempty"`
	Lost bool   `json:",omitempty"` // the kubelet has lost its record of the container, which runs
}

// Container returns the name of the container, with the pod's.
func (h *Holder) Container() kubelet.Container { return kubelet.Container{Pod: h.Pod, Name: h.Name} }

// IsShownWithout reports whether a view shows the container with none of its devices: the container in the
// view belongs to a later pod of the same name.
func (h *Holder) IsShownWithout(view kubelet.View) bool {
	shown, listed := view.Containers[h.Container()]
	return listed && !h.Devices.HasAny(shown)
}

// Result is the result of a search.
type Result struct {
	Holders   Holders
	Allocates []Allocate       // not over
	Known     map[string]Known // of the checkpoint's pods
	// Unlisted are containers without a record whose pods the list of a kubelet that has just started does not
	// have yet. They hold nothing until the list has the pods.
	Unlisted Holders
}

// Holders are all containers with devices.
type Holders []Holder

// Of lists the holders of a device.
func (h Holders) Of(resource, id string) (found Holders) {
	for _, holder := range h {
		if slices.Contains(holder.Devices[resource], id) {
			found = append(found, holder)
		}
	}
	return found
}

// Units are holders by what they have of the node, whatever the names of the resources. The kubelet counts
// devices by resource name and ID, and would give a unit of two names to two containers.
type Units struct {
	unitOf   func(resource, id string) topology.Unit
	units    map[topology.Unit]Held // of several with a shared unit, any
	replicas map[kubelet.Device]Held
	parts    map[string]Held // by function: of several with a MIG device, any
}

// Held is a device as its holder got it.
type Held struct {
	*Holder
	kubelet.Device
}

// ByUnit returns the holders by unit. An app container takes precedence over init containers of its pod, and
// a container with a record over one whose record is lost.
func (h Holders) ByUnit(unitOf func(resource, id string) topology.Unit) *Units {
	u := &Units{unitOf, map[topology.Unit]Held{}, map[kubelet.Device]Held{}, map[string]Held{}}
	for i := range h {
		for d := range h[i].Devices.All() {
			unit, held := unitOf(d.Resource, d.ID), Held{&h[i], d}
			put(u.units, unit, held)
			if function, isMIG := unit.MIGFunction(); isMIG {
				put(u.parts, function, held)
			}
			if unit.Shared {
				put(u.replicas, d, held)
			}
		}
	}
	return u
}

func put[K comparable](all map[K]Held, key K, held Held) {
	if _, known := all[key]; !known || !held.Init && !held.Lost {
		all[key] = held
	}
}

// Of returns the holder that excludes other containers from a device, nil for none.
func (u *Units) Of(resource, id string) *Holder {
	held, _ := u.find(resource, id)
	return held.Holder
}

// Elsewhere returns the holder of a device under another name; false for none.
func (u *Units) Elsewhere(resource, id string) (held Held, found bool) {
	held, found = u.find(resource, id)
	return held, found && (held.Resource != resource || held.ID != id)
}

// find returns the device whose holder excludes other containers from a device: a shared unit is excluded by
// a container that has the unit alone, and by the container of the same replica; a whole GPU and its MIG
// devices exclude each other, which only a GPU that was repartitioned under its containers can have.
func (u *Units) find(resource, id string) (held Held, found bool) {
	unit := u.unitOf(resource, id)
	held, found = u.units[topology.Unit{Name: unit.Name}]
	if found {
		return held, true
	}
	if unit.Shared {
		held, found = u.replicas[kubelet.Device{Resource: resource, ID: id}]
	} else {
		held, found = u.units[topology.Unit{Name: unit.Name, Shared: true}]
	}
	if found {
		return held, true
	}
	function, isMIG := unit.MIGFunction()
	if !isMIG {
		held, found = u.parts[unit.Name]
		return held, found
	}
	for _, shared := range []bool{false, true} {
		held, found = u.units[topology.Unit{Name: function, Shared: shared}]
		if found {
			return held, true
		}
	}
	return held, false
}
