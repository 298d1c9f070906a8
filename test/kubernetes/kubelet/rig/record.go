// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"errors"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/test/history"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/topology"
)

// recording follows the admissions of a node for a history.
type recording struct {
	*history.Recorder
	pod     *v1.Pod    // in admission; otherwise nil
	waiting []wait     // containers of the pod that have not got all devices, in order
	open    history.ID // the call in progress
	newest  *Recorded  // the newest admission
	all     []*Recorded
	ends    map[types.UID]history.ID // releases that are not over
}

// Recorded is an admission in the history.
type Recorded struct {
	Position int // in the daemons' log, at the begin
	events   []history.ID
}

// wait is a container that has not got all devices.
type wait struct {
	container string
	resources []string
	aligned   bool // the NUMA nodes are recorded
}

// Record records every later event of the node. Calls of plugins are recorded with [Rig.Before] and
// [Rig.After].
func (r *Rig) Record(to *history.Recorder) {
	r.history = recording{Recorder: to, ends: map[types.UID]history.ID{}}
}

// Judged returns the devices of the machine for the judgement of a history.
func (r *Rig) Judged() history.Machine {
	m := history.Machine{
		Tree: r.Tree, Devices: map[string][]device.Device{},
		Kinds: map[string]device.Kind{r.GPU: device.GPU, VF: device.VF},
	}
	for _, gpu := range r.gpus {
		d := device.Device{ID: gpu.ID, Address: gpu.Address, Healthy: true}
		if of, known := r.Tree.Device(gpu.Address); known {
			d.NUMA = of.NUMA
		}
		m.Devices[r.GPU] = append(m.Devices[r.GPU], d)
	}
	for _, vf := range r.vfs {
		d := device.Device{ID: vf.Address.String(), Address: vf.Address, NUMA: vf.NUMA, Healthy: true}
		if r.setup.ExcludeTopology {
			d.NUMA = topology.NUMANode{}
		}
		m.Devices[VF] = append(m.Devices[VF], d)
	}
	return m
}

// Recorded returns all admissions in the history.
func (r *Rig) Recorded() []*Recorded { return r.history.all }

// Excuse exempts an admission from promises; nil is the newest admission.
func (r *Rig) Excuse(a *Recorded, promises ...history.Promise) {
	if a == nil {
		a = r.history.newest
	}
	for _, id := range a.events {
		r.history.Edit(id, func(e *history.Event) { e.Exempt = append(e.Exempt, promises...) })
	}
}

// arrives records the begin of an admission.
func (r *Rig) arrives(pod *v1.Pod) {
	h := &r.history
	if h.Recorder == nil {
		return
	}
	h.pod, h.waiting, h.newest = pod, nil, &Recorded{Position: r.Pair.Log.Len()}
	h.all = append(h.all, h.newest)
	e := event(history.Arrival, pod, "")
	e.Spec = &history.Spec{Required: pod.Annotations["tandem.dev/alignment"] == "required"}
	for i, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		sidecar := c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
		requests, w := map[string]int{}, wait{container: c.Name}
		for _, resource := range []string{r.GPU, VF} {
			if n := AsksFor(c, resource); n > 0 {
				requests[resource] = n
				w.resources = append(w.resources, resource)
			}
		}
		e.Spec.Containers = append(e.Spec.Containers, history.Container{
			Name: c.Name, Init: i < len(pod.Spec.InitContainers) && !sidecar, Requests: requests,
		})
		if len(w.resources) > 0 {
			h.waiting = append(h.waiting, w)
		}
	}
	h.Note(e)
}

// decided records the end of an admission.
func (r *Rig) decided(pod *v1.Pod, err error) {
	h := &r.history
	if h.Recorder == nil {
		return
	}
	h.pod = nil
	e := event(history.Verdict, pod, "")
	var rejection *node.Rejection
	if err != nil {
		e.Refusal, e.Own = err.Error(), errors.As(err, &rejection) && rejection.Reason == "TopologyAffinityError"
	} else {
		r.Confirm(pod)
	}
	id := h.Call(e)
	h.newest.events = append(h.newest.events, id)
	h.Return(id, nil)
}

// Confirm records the kubelet's own record of a pod.
func (r *Rig) Confirm(pod *v1.Pod) {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		e := event(history.Confirmation, pod, c.Name)
		if e.Held = r.Node.Devices(pod, c.Name); len(e.Held) > 0 {
			r.history.Note(e)
		}
	}
}

// ends records the end of a pod, whose devices the kubelet can free from now on.
func (r *Rig) ends(pod *v1.Pod) {
	if _, known := r.history.ends[pod.UID]; !known && r.history.Recorder != nil {
		r.history.ends[pod.UID] = r.history.Call(event(history.Release, pod, ""))
	}
}

// forgets records that the kubelet has forgotten an ended pod.
func (r *Rig) forgets(pod *v1.Pod) {
	r.history.Return(r.history.ends[pod.UID], nil)
	delete(r.history.ends, pod.UID)
}

// Before records a call of the kubelet to a plugin.
func (r *Rig) Before(call node.Call) {
	h := &r.history
	if h.open = 0; h.pod == nil || len(h.waiting) == 0 { // a restarted kubelet admits its pods again
		return
	}
	w := &h.waiting[0]
	if !w.aligned {
		w.aligned = true
		e := event(history.Alignment, h.pod, w.container)
		e.Nodes = r.Node.Affinity(h.pod, w.container)
		h.Note(e)
	}
	e := event(history.Question, h.pod, w.container)
	switch request := call.Request.(type) {
	case *v1beta1.PreferredAllocationRequest:
		c := request.GetContainerRequests()[0]
		e.Offer = &history.Offer{
			Available: slices.Clone(c.GetAvailableDeviceIDs()), MustInclude: slices.Clone(c.GetMustIncludeDeviceIDs()),
			Size: int(c.GetAllocationSize()),
		}
		e.Resource = r.resourceOf(e.Offer.Available)
	case *v1beta1.AllocateRequest:
		e.Kind, e.Devices = history.Allocation, slices.Clone(request.GetContainerRequests()[0].GetDevicesIds())
		e.Resource = r.resourceOf(e.Devices)
	}
	h.open = h.Call(e)
	h.newest.events = append(h.newest.events, h.open)
}

// After records the answer of a plugin.
func (r *Rig) After(call node.Call) {
	h := &r.history
	h.Return(h.open, func(e *history.Event) {
		switch reply := call.Reply.(type) {
		case *v1beta1.PreferredAllocationResponse:
			if e.Alone = call.Err != nil || len(reply.GetContainerResponses()) == 0; !e.Alone {
				e.Devices = slices.Clone(reply.GetContainerResponses()[0].GetDeviceIDs())
			}
		case *v1beta1.AllocateResponse:
			if call.Err != nil {
				e.Refusal = call.Err.Error()
				return
			}
			h.allocated(e.Resource)
		}
	})
}

// allocated notes that the container in admission has its devices of a resource.
func (h *recording) allocated(resource string) {
	w := &h.waiting[0]
	w.resources = slices.DeleteFunc(w.resources, func(name string) bool { return name == resource })
	if len(w.resources) == 0 {
		h.waiting = h.waiting[1:]
	}
}

// resourceOf returns the resource of devices.
func (m *Machine) resourceOf(ids []string) string {
	for _, vf := range m.vfs {
		if slices.Contains(ids, vf.Address.String()) {
			return VF
		}
	}
	return m.GPU
}

func event(kind history.Kind, pod *v1.Pod, container string) history.Event {
	return history.Event{
		Kind: kind, Pod: pod.Namespace + "/" + pod.Name, UID: string(pod.UID), Container: container,
	}
}

// AsksFor returns the number of devices of a resource that a container requests.
func AsksFor(c v1.Container, resource string) int {
	quantity := c.Resources.Limits[v1.ResourceName(resource)]
	return int(quantity.Value())
}
