// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/history"
)

// Pod is a pod of the kubelet.
type Pod struct {
	kubelet.Pod
	UID        string
	Alignment  intent.Alignment
	Containers []*Container // in the order of their admission

	created time.Time
	started bool
	ended   bool
	release history.ID                 // the pod's end
	listed  bool                       // false after a restart until Return
	reuse   map[string]map[string]bool // reusable devices of init containers, by resource
}

// Role is the role of a container in its pod, with the number that the product has for the role.
type Role int

// The roles.
const (
	App Role = iota
	Init
	Sidecar
)

// Container is a container of a pod.
type Container struct {
	Name     string
	Role     Role
	Requests map[string]int
	Nodes    []int           // NUMA nodes from the Topology Manager; nil for no affinity
	Devices  kubelet.Devices // allocated devices

	Responses map[string][]byte // answers to Allocate by resource, set by Plugins; for the checkpoint

	Asked  []string            // resources with a GetPreferredAllocation, in that order
	Reused bool                // the container got a device of an init container
	Choice map[string][]string // free devices on the NUMA nodes at admission, by resource
	Must   map[string][]string // if those are too few: all of them, and Choice has the others
}

// Of returns the full name of a container.
func (p *Pod) Of(c *Container) kubelet.Container { return kubelet.Container{Pod: p.Pod, Name: c.Name} }

// Inherits reports whether a container of the pod reuses devices of init containers.
func (p *Pod) Inherits(c *Container) bool {
	for name := range c.Requests {
		if len(p.reuse[name]) > 0 {
			return true
		}
	}
	return c.Reused
}

// String returns the requests of the pod.
func (p *Pod) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s %s", p.Name, p.UID, p.Alignment)
	for _, c := range p.Containers {
		fmt.Fprintf(&text, " %s%v", c.Name, c.Requests)
	}
	return text.String()
}

// kinds lists the containers before the app containers of the pods that are not of the deck.
var kinds = [][]Role{
	nil, nil, nil, nil,
	{Init}, {Sidecar}, {Init, Sidecar}, {Sidecar, Init},
}

// requests lists the numbers of GPUs and VFs of random containers.
var requests = [][2]int{{1, 1}, {2, 2}, {4, 4}, {1, 0}, {2, 0}, {0, 1}, {0, 2}, {0, 0}, {2, 1}, {1, 2}}

// rare lists requests of few containers: all devices of a small node, and more than a node has.
var rare = [][2]int{{8, 8}, {17, 1}, {3, 5}}

// requests returns the numbers of GPUs and VFs of a random container.
func (k *Kubelet) requests() [2]int {
	if k.random.IntN(25) == 0 {
		return rare[k.random.IntN(len(rare))]
	}
	return requests[k.random.IntN(len(requests))]
}

// Random returns a random pod. One of five requires alignment.
func (k *Kubelet) Random() *Pod {
	p := &Pod{Pod: kubelet.Pod{Namespace: "team", Name: k.name()}}
	if k.random.IntN(5) == 0 {
		p.Alignment = intent.Required
	}
	names := map[Role]string{Init: "init", Sidecar: "side", App: "c"}
	for i, role := range k.shape() {
		r := k.requests()
		c := &Container{
			Name: fmt.Sprint(names[role], i), Role: role, Requests: map[string]int{GPUs: r[0], VFs: r[1]},
		}
		maps.DeleteFunc(c.Requests, func(_ string, n int) bool { return n == 0 })
		p.Containers = append(p.Containers, c)
	}
	return p
}

// name returns an unused pod name, in half of the cases the name of a former pod.
func (k *Kubelet) name() string {
	again := fmt.Sprint("again-", k.random.IntN(8))
	taken := slices.ContainsFunc(k.pods, func(p *Pod) bool { return p.Name == again })
	if taken || k.random.IntN(2) == 0 {
		return fmt.Sprint("pod-", k.uids)
	}
	return again
}
