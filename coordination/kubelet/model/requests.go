// SPDX-License-Identifier: Apache-2.0

package model

import "slices"

// Kind is the kind of the devices of a resource: GPUs or VFs.
type Kind int

// The two kinds of device.
const (
	GPU Kind = iota
	VF
)

// Kinds are both kinds.
var Kinds = [...]Kind{GPU, VF}

// String returns the name for people.
func (k Kind) String() string { return [...]string{"GPU", "VF"}[k] }

// Other returns the other kind.
func (k Kind) Other() Kind { return 1 - k }

// Role is the role of a container in its pod, which determines the later use of its devices.
type Role int

// The roles.
const (
	App     Role = iota
	Init         // runs before the app containers, which reuse its devices
	Sidecar      // a restartable init container: it runs next to the app containers and keeps its devices
)

// Container is a container of a pod in admission.
type Container struct {
	Role     Role
	Requests Requests
}

// TopologyManager is the Topology Manager of a node's kubelet.
type TopologyManager struct {
	Rule     Rule
	ScopePod bool // topologyManagerScope is pod
}

// Requests are the numbers of requested devices of a container, in the kubelet's order of allocation.
type Requests []Request

// Request is a number of devices of a resource.
type Request struct {
	Resource int // its index in the resources of the node
	Count    int // 0 if the container names the resource and requests none
}

// ByResource returns the requests in the order of the node's resources.
func (list Requests) ByResource() Requests {
	return slices.SortedFunc(slices.Values(list), func(a, b Request) int { return a.Resource - b.Resource })
}

// Total returns the requests of a pod under scope pod (PodLimits in k8s.io/component-helpers): the maximum of
// the sum over app containers and sidecars, and of the requests of init containers.
func Total(containers []Container) Requests {
	type sum struct{ run, sidecars, before int }
	sums := map[int]sum{}
	for _, c := range containers {
		for _, r := range c.Requests {
			s := sums[r.Resource]
			switch c.Role {
			case App:
				s.run += r.Count
			case Sidecar:
				s.run += r.Count
				s.sidecars += r.Count
				s.before = max(s.before, s.sidecars)
			case Init:
				s.before = max(s.before, s.sidecars+r.Count)
			}
			sums[r.Resource] = s
		}
	}
	var total Requests
	for i, s := range sums {
		total = append(total, Request{i, max(s.run, s.before)})
	}
	return total.ByResource()
}
