// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
)

// Rejection explains a pod that the kubelet's Topology Manager has rejected. The kubelet calls no device
// plugin for such a pod, and nobody records what was free at that moment. The explanation therefore compares
// the pod's requests with the status of the node, by the kubelet's own rules ([devicemanager]): the devices
// that are free now, by NUMA node and switch, the holders of the other devices, and the empty node. The
// plugins' decisions tell which holders had their devices at the rejection.
type Rejection struct {
	Pod  string `json:"pod"`  // namespace/pod
	Node string `json:"node"` // "" is the node of the command
	// by the clock of the node, as in decisions; absent if unknown
	RejectedAt *time.Time `json:"rejectedAt,omitempty"`
	Verdict    string     `json:"verdict"` // a sentence about the present node
	// what is known of the devices at the rejection, a sentence; absent if devices are not the cause, or if the
	// node always rejects the pod
	Then string `json:"then,omitempty"`
	Next string `json:"next"` // the most helpful step
	// the node admits the devices of the pod now; a pod of the same requests may start
	FitsNow bool `json:"fitsNow"`
	// the node admits the devices of the pod if all healthy devices are free
	FitsEmpty bool `json:"fitsEmptyNode"`
	// the policy and the scope of the kubelet's Topology Manager
	Policy string `json:"topologyManagerPolicy"`
	Scope  string `json:"topologyManagerScope"`
	// why policy and scope are those that Tandem requires; absent if these are the kubelet's
	Assumed string `json:"assumed,omitempty"`
	// with a request for devices or exclusive CPUs
	Containers []intent.Container  `json:"containers"`
	Resources  []requestedResource `json:"resources"`
	Switches   []requestedSwitch   `json:"switches,omitempty"`
	Holders    []holder            `json:"holders,omitempty"`
}

// requestedResource is a requested resource of the node.
type requestedResource struct {
	Name      string      `json:"name"`
	Requested int         `json:"requested"` // by the pod, containers one after the other
	NUMA      []numaCount `json:"numa"`
}

// numaCount is the number of devices of a resource on a NUMA node.
type numaCount struct {
	Node topology.NUMANode `json:"node"` // null: without a NUMA node
	Count
}

// requestedSwitch is the devices of a requested resource on a switch, or on a host bridge.
type requestedSwitch struct {
	Name     string `json:"name"`
	Resource string `json:"resource"`
	Count
}

// holder is the devices of a resource that a pod holds on a NUMA node.
type holder struct {
	Pod      string            `json:"pod"` // namespace/pod; "?" for any number of unknown pods
	Resource string            `json:"resource"`
	Node     topology.NUMANode `json:"node"` // NUMA node; null: without a NUMA node
	Devices  int               `json:"devices"`
	// the pod's first allocation, by the plugins' decisions; absent if unknown
	Since *time.Time `json:"since,omitempty"`
}

// ExplainRejection compares a rejected pod with the status of its node, under the settings of the node's
// kubelet, and with the decisions of the node's plugins.
func ExplainRejection(
	p *corev1.Pod, s *Status, decisions kubelet.Reading[[]Decision], settings kubelet.Reading[kubelet.Settings],
) Rejection {
	manager, assumed := rejectingManager(settings)
	n, containers := NewNode(s.Resources, manager), intent.ContainersOf(p)
	pod := n.modelContainers(containers)
	r := Rejection{
		Pod: p.Namespace + "/" + p.Name, Node: p.Spec.NodeName,
		Policy: string(manager.Rule.Policy), Scope: "container", Assumed: assumed,
		FitsNow:   n.canAdmit(n.takenBut(), pod...),
		FitsEmpty: n.canAdmit(n.model.NewSet(), pod...),
	}
	if manager.ScopePod {
		r.Scope = "pod"
	}
	for _, c := range containers {
		if len(c.Requests) > 0 || c.CPUs > 0 {
			r.Containers = append(r.Containers, c)
		}
	}
	if at := p.Status.StartTime; at != nil { // set by the kubelet at the rejection
		r.RejectedAt = &at.Time
	}
	known, err := decisions.Get()
	total, since := model.Total(pod), firstAllocations(known)
	r.Resources, r.Switches = n.countResources(total), n.countSwitches(total)
	r.Holders = n.listHolders(total, since)
	r.Verdict, r.Next = n.judgeRejection(&r, pod)
	r.Then = n.describeThen(&r, pod, err)
	return r
}

// rejectingManager returns the Topology Manager that has rejected a pod, by the settings of its kubelet.
// Assumed says why policy and scope are those that Tandem requires instead; "" if they are the kubelet's.
func rejectingManager(settings kubelet.Reading[kubelet.Settings]) (m model.TopologyManager, assumed string) {
	var read model.Kubelet
	known, err := settings.Get()
	if err == nil {
		read, err = known.Model()
	}
	if err == nil {
		m, err = read.TopologyManager(nil)
	}
	if p := m.Rule.Policy; err == nil && p != model.Restricted && p != model.SingleNUMANode {
		err = fmt.Errorf("policy %s rejects no pod: a drop-in or a flag has another, or it has changed since", p)
	}
	if err != nil {
		return model.TopologyManager{Rule: model.Documented(nil)}, err.Error()
	}
	return m, ""
}

// firstAllocations returns the time of the first allocation of each pod that holds devices.
func firstAllocations(decisions []Decision) map[string]time.Time {
	since := map[string]time.Time{}
	for _, d := range decisions {
		pod := podOf(d.Container)
		if first, known := since[pod]; d.Held && d.AllocatedAt != nil && (!known || d.AllocatedAt.Before(first)) {
			since[pod] = *d.AllocatedAt
		}
	}
	return since
}

// countResources returns requested resources with their devices by NUMA node.
func (n *Node) countResources(total model.Requests) (list []requestedResource) {
	free := n.freeDevices()
	for _, request := range total {
		of := &n.model.Resources[request.Resource]
		r := requestedResource{Name: of.Name, Requested: request.Count}
		n.eachNUMANode(of, func(node topology.NUMANode, on devicemanager.Set) {
			r.NUMA = append(r.NUMA, numaCount{node, Count{free.Common(on), on.Len()}})
		})
		list = append(list, r)
	}
	return list
}

// countSwitches returns the devices of requested resources by switch.
func (n *Node) countSwitches(total model.Requests) (list []requestedSwitch) {
	free := n.freeDevices()
	for _, name := range slices.Sorted(maps.Keys(n.on)) {
		for _, request := range total {
			of := &n.model.Resources[request.Resource]
			if on := n.on[name].Intersection(of.All); on.Len() > 0 {
				list = append(list, requestedSwitch{name, of.Name, Count{free.Common(on), on.Len()}})
			}
		}
	}
	return list
}

// listHolders returns the pods with devices of requested resources.
func (n *Node) listHolders(total model.Requests, since map[string]time.Time) (list []holder) {
	for _, pod := range slices.Sorted(maps.Keys(n.held)) {
		for _, request := range total {
			of := &n.model.Resources[request.Resource]
			n.eachNUMANode(of, func(node topology.NUMANode, on devicemanager.Set) {
				if held := n.held[pod].Common(on); held > 0 {
					h := holder{Pod: pod, Resource: of.Name, Node: node, Devices: held}
					if at, known := since[pod]; known {
						h.Since = &at
					}
					list = append(list, h)
				}
			})
		}
	}
	return list
}

// eachNUMANode visits the devices of a resource by NUMA node; devices without a NUMA node come last.
func (n *Node) eachNUMANode(
	r *devicemanager.ResourceDevices, visit func(node topology.NUMANode, on devicemanager.Set),
) {
	without := r.All.Clone()
	for number, on := range r.On {
		without.Exclude(on)
		if on.Len() > 0 {
			visit(topology.Node(number), on)
		}
	}
	if without.Len() > 0 {
		visit(topology.NUMANode{}, without)
	}
}

// numaNodes returns the NUMA nodes for requests on the empty node.
func (n *Node) numaNodes(requests model.Requests) model.Mask {
	a := n.newAdmission(n.model.NewSet(), nil)
	best, _ := a.Merge(0, requests)
	return best.Nodes
}
