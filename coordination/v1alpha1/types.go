// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 defines the object that each node publishes: tandem.dev/v1alpha1 NodeTopology,
// cluster-scoped, with the name of the node. It contains the input of the kubelet's admission and the places
// of devices, so that a scheduler can compute both the kubelet's verdict and a container's pairs.
//
// Devices have numbers instead of names, and sets of devices have the kernel's format of CPU lists ("0-3,8").
// Both keep the object small: it is written whenever the kubelet assigns devices to a pod, and every
// scheduler receives it.
package v1alpha1

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
)

// NodeTopology is the publication of one node, with the name of the node.
type NodeTopology struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec Spec `json:"spec"`
}

// NodeTopologyList is a list of NodeTopology objects.
type NodeTopologyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []NodeTopology `json:"items"`
}

// Spec is the complete input of the kubelet's admissions, and of a container's pairs.
type Spec struct {
	Kubelet   Kubelet         `json:"kubelet"`
	Alignment model.Alignment `json:"alignment,omitzero"`
	Resources []Resource      `json:"resources"`           // by name, ascending
	Switches  []Switch        `json:"switches,omitempty"`  // by path, ascending
	NUMANodes []NUMANode      `json:"numaNodes,omitempty"` // of the machine, by number, ascending
	Links     []Link          `json:"links,omitempty"`     // between GPUs; empty if all links are equal
	Held      []Held          `json:"held,omitempty"`      // by UID, ascending
	// MemoryReserved lists the NUMA nodes with assigned memory, by number, ascending.
	MemoryReserved []MemoryReserved `json:"memoryReserved,omitempty"`
	Summary        Summary          `json:"summary"`
}

// Kubelet is how the kubelet of the node admits pods.
type Kubelet = model.Kubelet

// Set is a set of numbers as the kernel prints lists of CPUs: "0-3,8". Empty is none.
type Set string

// Resource is an extended resource of the node. Its devices are numbered from 0, in the order of their PCI
// addresses, then of their IDs.
type Resource struct {
	Name      string `json:"name"` // "amd.com/gpu"
	Kind      Kind   `json:"kind"`
	Devices   int    `json:"devices"`             // number of devices, including unhealthy ones
	Unhealthy Set    `json:"unhealthy,omitempty"` // of these
	// Hints are the devices by the number of the NUMA node in their hint; empty for a resource without hints
	// (excludeTopology).
	Hints map[string]Set `json:"hints,omitempty"`
	// Functions are the sets of devices on one physical function: VFs of one PF, partitions of one GPU. Each
	// device is in one set. Empty if each device is a physical function.
	Functions []Set `json:"functions,omitempty"`
	// Addresses are the addresses of the physical functions: of the sets in Functions, in order, or of the
	// devices if Functions is empty. They break ties between equally good places.
	Addresses []string `json:"addresses,omitempty"`
	// Degraded are the physical functions, as indices in Addresses, whose devices are chosen last: by a port,
	// counters, or a PCIe link below its maximum.
	Degraded Set `json:"degraded,omitempty"`
}

// Kind is the half of a pair that a device can be.
type Kind string

// The kinds.
const (
	GPU Kind = "gpu"
	VF  Kind = "vf"
)

// Switch is the set of devices below a PCIe switch: the topmost bridge shared by two cards. Devices without a
// shared bridge are in an entry of their root complex with Alone set, and make no same-switch pairs.
type Switch struct {
	Name string `json:"name"` // the bridge, "0000:80:01.1", or the root complex, "pci0000:80"
	// Path has the root complex and the bridges that all devices of the switch share with other cards, from the
	// top down, by address: "pci0000:80/0000:80:01.1/0000:81:00.0".
	Path    string         `json:"path"`
	Alone   bool           `json:"alone,omitempty"`
	NUMA    *int           `json:"numa,omitempty"` // the machine's NUMA node; absent if unknown
	Devices map[string]Set `json:"devices"`        // by resource
	// Redirected is the number of bridges of Path, from the top, above a port that redirects traffic between the
	// devices to the host bridge (ACS).
	Redirected int `json:"redirected,omitempty"`
	// Below are the devices with other values: they share further bridges, or their traffic is redirected
	// differently.
	Below []Below `json:"below,omitempty"`
}

// UnknownPath is the path of devices outside the tree.
const UnknownPath = "unknown"

// Below is a group of devices of a switch that are PIX to each other, and PXB to other devices of the switch.
type Below struct {
	Path       string         `json:"path,omitempty"`       // the shared bridges below the switch
	Redirected int            `json:"redirected,omitempty"` // number of bridges of both paths, as for the switch
	Devices    map[string]Set `json:"devices"`              // by resource; included in the switch's devices
}

// NUMANode is a NUMA node of the machine.
type NUMANode struct {
	Number int `json:"number"`
	// Distances are the distances to all nodes of the list, in order (SLIT: 10 is the node itself).
	Distances []int `json:"distances,omitempty"`
	CPUs      Set   `json:"cpus,omitempty"` // if the CPU manager's policy is static
	// Cores are the CPUs of each core with several CPUs, in the order of their lowest CPUs.
	Cores []Set `json:"cores,omitempty"`
	// Socket is the number of the CPUs' socket, if it differs from the node's number.
	Socket *int `json:"socket,omitempty"`
	// Memory is the memory manager's state of the node, if its policy is Static; the kinds are "memory" and
	// "hugepages-2Mi".
	Memory map[string]Memory `json:"memory,omitempty"`
}

// Memory is a kind of memory of a NUMA node in bytes (memory_manager_state of the kubelet).
type Memory struct {
	Total          uint64 `json:"total"`
	SystemReserved uint64 `json:"systemReserved"`
	Allocatable    uint64 `json:"allocatable"`
}

// Link is a direct link between two GPUs.
type Link struct {
	A     GPURef `json:"a"`
	B     GPURef `json:"b"`
	Type  string `json:"type"` // XGMI or NVLINK
	Hops  int    `json:"hops"`
	Count int    `json:"count"`
}

// GPURef names a GPU by resource and number, "amd.com/gpu/3".
type GPURef string

// Held has the assignments of a pod, which stay until the kubelet needs the devices. Readers must check
// whether the pod still runs.
type Held struct {
	UID        string      `json:"uid"`
	Containers []Container `json:"containers"` // in the order of their names
}

// Container has the assignments of one container of a pod.
type Container struct {
	Name    string         `json:"name"`
	Devices map[string]Set `json:"devices,omitempty"` // by resource
	CPUs    Set            `json:"cpus,omitempty"`    // exclusive ones (cpu_manager_state)
	Memory  []MemoryBlock  `json:"memory,omitempty"`  // memory_manager_state
}

// MemoryBlock is a container's memory on NUMA nodes.
type MemoryBlock struct {
	NUMANodes Set    `json:"numaNodes"`
	Type      string `json:"type"`
	Size      uint64 `json:"size"` // bytes
}

// MemoryReserved is the assigned memory of a NUMA node. The blocks of pods do not determine it if they span
// several nodes: the split depends on the free memory at that time.
type MemoryReserved struct {
	NUMANode int `json:"numaNode"`
	// Group has the nodes of the last assigned memory, including this node (cells).
	Group  Set               `json:"group"`
	Memory map[string]uint64 `json:"memory,omitempty"` // bytes by kind
}

// Summary is for people, and for the columns of kubectl get. It is computed from the other fields.
type Summary struct {
	Switches  int    `json:"switches"`  // with GPUs and VFs
	GPUs      string `json:"gpus"`      // free devices of all healthy ones, "3/8"
	VFs       string `json:"vfs"`       // in the same form
	FreePairs int    `json:"freePairs"` // same-switch pairs of free devices
}

// GroupVersion is the API group and version of this package.
var GroupVersion = schema.GroupVersion{Group: "tandem.dev", Version: "v1alpha1"}

// Plural is the name of the resource in the API server's paths.
const Plural = "nodetopologies"

// DeepCopyObject implements runtime.Object.
func (t *NodeTopology) DeepCopyObject() runtime.Object { return t.DeepCopy() }

// DeepCopy returns a deep copy.
func (t *NodeTopology) DeepCopy() *NodeTopology {
	c := &NodeTopology{TypeMeta: t.TypeMeta, Spec: *t.Spec.DeepCopy()}
	t.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return c
}

// DeepCopyObject implements runtime.Object.
func (l *NodeTopologyList) DeepCopyObject() runtime.Object {
	c := &NodeTopologyList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&c.ListMeta)
	c.Items = copyEach(l.Items, func(t *NodeTopology) { *t = *t.DeepCopy() })
	return c
}

// DeepCopy returns a deep copy.
func (s *Spec) DeepCopy() *Spec {
	c := *s
	c.Kubelet.TopologyManagerPolicyOptions = maps.Clone(s.Kubelet.TopologyManagerPolicyOptions)
	c.Kubelet.CPUManagerPolicyOptions = maps.Clone(s.Kubelet.CPUManagerPolicyOptions)
	c.Resources = copyEach(s.Resources, func(r *Resource) {
		r.Hints, r.Functions = maps.Clone(r.Hints), slices.Clone(r.Functions)
		r.Addresses = slices.Clone(r.Addresses)
	})
	c.Switches = copyEach(s.Switches, func(s *Switch) {
		s.Devices = maps.Clone(s.Devices)
		if s.NUMA != nil {
			s.NUMA = new(*s.NUMA)
		}
		s.Below = copyEach(s.Below, func(b *Below) { b.Devices = maps.Clone(b.Devices) })
	})
	c.NUMANodes = copyEach(s.NUMANodes, func(n *NUMANode) {
		n.Distances, n.Memory, n.Cores = slices.Clone(n.Distances), maps.Clone(n.Memory), slices.Clone(n.Cores)
		if n.Socket != nil {
			n.Socket = new(*n.Socket)
		}
	})
	c.Links = slices.Clone(s.Links)
	c.Held = copyEach(s.Held, func(h *Held) {
		h.Containers = copyEach(h.Containers, func(c *Container) {
			c.Devices, c.Memory = maps.Clone(c.Devices), slices.Clone(c.Memory)
		})
	})
	c.MemoryReserved = copyEach(s.MemoryReserved, func(r *MemoryReserved) { r.Memory = maps.Clone(r.Memory) })
	return &c
}

// copyEach returns a copy of a list, with deepen applied to each element.
func copyEach[T any](list []T, deepen func(*T)) []T {
	c := slices.Clone(list)
	for i := range c {
		deepen(&c[i])
	}
	return c
}

// Range is a run of numbers of a set, both ends included.
type Range struct{ First, Last int }

// SetOf returns the set of non-negative numbers, in any order.
func SetOf(numbers ...int) Set {
	set := topology.CPUSet{}
	for _, n := range numbers {
		set[n] = true
	}
	return Set(set.String())
}

// Ranges returns the runs of the set, ascending. It returns an error if the text is not a set, or if a number
// repeats or is not below limit. Its time and memory depend only on the length of the text.
func (s Set) Ranges(limit int) ([]Range, error) {
	if s == "" {
		return nil, nil
	}
	var ranges []Range
	for part := range strings.SplitSeq(string(s), ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		low, err := strconv.ParseUint(first, 10, 31)
		high, errHigh := strconv.ParseUint(last, 10, 31)
		if cmp.Or(err, errHigh) != nil || high < low {
			return nil, fmt.Errorf("parse set %.40q", s)
		}
		if int(high) >= limit {
			return nil, fmt.Errorf("parse set %.40q: %d is not below %d", s, high, limit)
		}
		ranges = append(ranges, Range{int(low), int(high)})
	}
	slices.SortFunc(ranges, func(a, b Range) int { return a.First - b.First })
	for i, r := range ranges[1:] {
		if r.First <= ranges[i].Last {
			return nil, fmt.Errorf("parse set %.40q: %d is there twice", s, r.First)
		}
	}
	return ranges, nil
}

// List returns the members of the set, ascending. Its errors are those of [Set.Ranges].
func (s Set) List(limit int) ([]int, error) {
	ranges, err := s.Ranges(limit)
	if err != nil {
		return nil, err
	}
	count := 0
	for _, r := range ranges {
		count += r.Last - r.First + 1
	}
	list := make([]int, 0, count)
	for _, r := range ranges {
		for n := r.First; n <= r.Last; n++ {
			list = append(list, n)
		}
	}
	return list, nil
}

// Numbers returns the members, ascending, or nil for an invalid set or numbers above 65,535.
func (s Set) Numbers() []int {
	list, err := s.List(1 << 16)
	if err != nil || len(list) == 0 {
		return nil
	}
	return list
}
