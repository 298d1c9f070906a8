// SPDX-License-Identifier: Apache-2.0

package rejection

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// Rejection is the comparison of a rejected pod's requests with the devices of its node.
type Rejection struct {
	Pod     string `json:"pod"` // namespace/pod
	Node    string `json:"node"`
	Verdict string `json:"verdict"` // a sentence
	Next    string `json:"next"`    // the most helpful step
	// the node admits the devices of the pod now; a pod of the same requests may start
	FitsNow bool `json:"fitsNow"`
	// the node admits the devices of the pod if all healthy devices are free
	FitsEmpty bool `json:"fitsEmptyNode"`
	// the policy and the scope of the kubelet's Topology Manager
	Policy     string      `json:"topologyManagerPolicy"`
	Scope      string      `json:"topologyManagerScope"`
	Containers []Container `json:"containers"`
	Resources  []Resource  `json:"resources"`
	Holders    []Holder    `json:"holders,omitempty"`
}

// Container is a container of the pod with a request for devices or exclusive CPUs.
type Container struct {
	Name     string         `json:"name"`
	Requests map[string]int `json:"requests"`       // by extended resource
	CPUs     int            `json:"cpus,omitempty"` // exclusive CPUs
}

// Resource is a requested resource of the node.
type Resource struct {
	Name      string      `json:"name"`
	Requested int         `json:"requested"` // by the pod, containers one after the other
	NUMA      []NUMACount `json:"numa"`
}

// NUMACount is the number of devices of a resource on a NUMA node.
type NUMACount struct {
	Node *int `json:"node"` // null: without a NUMA node
	Free int  `json:"free"` // healthy and without a container
	All  int  `json:"all"`
}

// Holder is the devices of a resource that a pod holds on a NUMA node.
type Holder struct {
	Pod      string `json:"pod"` // namespace/pod; "?" for any number of unknown pods
	Resource string `json:"resource"`
	Node     *int   `json:"node"` // NUMA node; null: without a NUMA node
	Devices  int    `json:"devices"`
}

// Explain compares a rejected pod with the status of its node, under the settings of the node's kubelet.
func Explain(p *corev1.Pod, s *coordinator.Status, kubelet devicemanager.Kubelet) Rejection {
	n, containers := NewNode(s.Resources, kubelet), intent.ContainersOf(p)
	pod := n.containers(containers)
	r := Rejection{
		Pod: p.Namespace + "/" + p.Name, Node: p.Spec.NodeName,
		Policy: string(kubelet.Rule.Policy), Scope: "container",
		FitsNow:   n.admits(n.taken(), pod...),
		FitsEmpty: n.admits(n.model.NewSet(), pod...),
	}
	if kubelet.ScopePod {
		r.Scope = "pod"
	}
	for _, c := range containers {
		if len(c.Requests) > 0 || c.CPUs > 0 {
			r.Containers = append(r.Containers, Container{c.Name, c.Requests, c.CPUs})
		}
	}
	total := devicemanager.Total(pod)
	r.Resources = n.resources(total)
	r.Holders = n.holders(total)
	r.Verdict, r.Next = n.verdict(&r, pod)
	return r
}

// resources returns requested resources with their devices by NUMA node.
func (n *Node) resources(total devicemanager.Requests) (list []Resource) {
	free := n.free()
	for _, request := range total {
		of := &n.model.Resources[request.Resource]
		r := Resource{Name: of.Name, Requested: request.Count}
		n.eachNUMANode(of, func(number *int, on devicemanager.Set) {
			r.NUMA = append(r.NUMA, NUMACount{number, free.Common(on), on.Len()})
		})
		list = append(list, r)
	}
	return list
}

// holders returns the pods with devices of requested resources.
func (n *Node) holders(total devicemanager.Requests) (list []Holder) {
	for _, pod := range slices.Sorted(maps.Keys(n.held)) {
		for _, request := range total {
			of := &n.model.Resources[request.Resource]
			n.eachNUMANode(of, func(number *int, on devicemanager.Set) {
				if held := n.held[pod].Common(on); held > 0 {
					list = append(list, Holder{pod, of.Name, number, held})
				}
			})
		}
	}
	return list
}

// eachNUMANode visits the devices of a resource by NUMA node; devices without a NUMA node come last.
func (n *Node) eachNUMANode(r *devicemanager.Resource, visit func(number *int, on devicemanager.Set)) {
	without := r.All.Clone()
	for number, on := range r.On {
		without.Exclude(on)
		if on.Len() > 0 {
			visit(&number, on)
		}
	}
	if without.Len() > 0 {
		visit(nil, without)
	}
}

// numaNodes returns the NUMA nodes for requests on the empty node.
func (n *Node) numaNodes(requests devicemanager.Requests) hints.Mask {
	a := n.admission(n.model.NewSet(), nil)
	best, _ := a.Merge(0, requests)
	return best.Nodes
}
