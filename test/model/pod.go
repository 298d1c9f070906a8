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
	listed  bool                       // a kubelet that has just started has not taken in all of its pods
	reuse   map[string]map[string]bool // by resource: devices of init containers for later containers
}

// Container is a container of a pod.
type Container struct {
	Name     string
	Role     intent.Role
	Requests map[string]int
	Devices  kubelet.Devices // held devices

	// the kubelet's questions for the container, in order; Reused if it got a device of an init container
	Asked  []string
	Reused bool
	// the free devices on its NUMA nodes, by resource, before its admission
	Choice map[string][]string
}

// Of returns a container's full name.
func (p *Pod) Of(c *Container) kubelet.Container { return kubelet.Container{Pod: p.Pod, Name: c.Name} }

// Inherits reports whether a container of a pod has to take over devices of the pod's init containers.
func (p *Pod) Inherits(c *Container) bool {
	for name := range c.Requests {
		if len(p.reuse[name]) > 0 {
			return true
		}
	}
	return c.Reused
}

// String formats a pod's request.
func (p *Pod) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s %s", p.Name, p.UID, p.Alignment)
	for _, c := range p.Containers {
		fmt.Fprintf(&text, " %s%v", c.Name, c.Requests)
	}
	return text.String()
}

// told returns a pod in the form of a source of pod requests.
func (p *Pod) told() intent.Pod {
	pod := intent.Pod{
		Pod: p.Pod, UID: p.UID, Created: p.created.Truncate(time.Second), Started: p.started,
		Alignment: p.Alignment,
	}
	for _, c := range p.Containers {
		pod.Containers = append(pod.Containers,
			intent.Container{Name: c.Name, Role: c.Role, Requests: maps.Clone(c.Requests)})
	}
	return pod
}

// kinds are the containers before the first app container of random pods.
var kinds = [][]intent.Role{
	nil, nil, nil, nil,
	{intent.Init}, {intent.Sidecar}, {intent.Init, intent.Sidecar}, {intent.Sidecar, intent.Init},
}

// wishes are the numbers of GPUs and VFs of random containers.
var wishes = [][2]int{{1, 1}, {2, 2}, {4, 4}, {1, 0}, {2, 0}, {0, 1}, {0, 2}, {0, 0}, {2, 1}, {1, 2}}

// Random returns a random pod. One of five requires alignment.
func (k *Kubelet) Random() *Pod {
	p := &Pod{Pod: kubelet.Pod{Namespace: "team", Name: k.name()}}
	if k.random.IntN(5) == 0 {
		p.Alignment = intent.Required
	}
	add := func(name string, role intent.Role) {
		w := wishes[k.random.IntN(len(wishes))]
		c := &Container{Name: name, Role: role, Requests: map[string]int{GPUs: w[0], VFs: w[1]}}
		maps.DeleteFunc(c.Requests, func(_ string, n int) bool { return n == 0 })
		p.Containers = append(p.Containers, c)
	}
	for _, role := range kinds[k.random.IntN(len(kinds))] {
		add(map[intent.Role]string{intent.Init: "init", intent.Sidecar: "side"}[role], role)
	}
	add("c0", intent.App)
	if k.random.IntN(4) == 0 {
		add("c1", intent.App)
	}
	return p
}

// name returns a name without a current pod; half of the names repeat.
func (k *Kubelet) name() string {
	again := fmt.Sprint("again-", k.random.IntN(8))
	taken := slices.ContainsFunc(k.pods, func(p *Pod) bool { return p.Name == again })
	if taken || k.random.IntN(2) == 0 {
		return fmt.Sprint("pod-", k.uids)
	}
	return again
}
