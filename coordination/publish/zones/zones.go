// SPDX-License-Identifier: Apache-2.0

// Package zones computes a node's NodeResourceTopology, which schedulers read, from its facts
// (topology.node.k8s.io/v1alpha2, github.com/k8stopologyawareschedwg/noderesourcetopology-api).
package zones

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"

	"github.com/k8stopologyawareschedwg/podfingerprint"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/coordination/publish/facts"
	"github.com/tandem-k8s/tandem/coordination/publish/object"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/topology"
)

// APIVersion and Kind of the object; Collection is its path at the API server.
const (
	APIVersion = "topology.node.k8s.io/v1alpha2"
	Kind       = "NodeResourceTopology"
	Collection = "/apis/" + APIVersion + "/noderesourcetopologies"
)

// Topology is a NodeResourceTopology.
type Topology struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Policies   []string    `json:"topologyPolicies,omitempty"` // the field of v1alpha1, for Koordinator
	Zones      []Zone      `json:"zones"`
	Attributes []Attribute `json:"attributes,omitempty"`
}

// Types of zones: NUMA nodes, and switches below them.
const (
	NUMAZone   = "Node"
	SwitchZone = "Switch"
)

// Zone is a NUMA node, "node-0", or a switch, by its address.
type Zone struct {
	Name      string     `json:"name"`
	Type      string     `json:"type"`
	Parent    string     `json:"parent,omitempty"`
	Costs     []Cost     `json:"costs,omitempty"`
	Resources []Resource `json:"resources,omitempty"`
}

// Cost is the distance of another zone (SLIT).
type Cost struct {
	Name  string `json:"name"`
	Value int64  `json:"value"`
}

// Resource counts the devices of a zone: all devices, the healthy ones, and the free ones among those.
type Resource struct {
	Name        string            `json:"name"`
	Capacity    resource.Quantity `json:"capacity"`
	Allocatable resource.Quantity `json:"allocatable"`
	Available   resource.Quantity `json:"available"`
}

// Attribute is a word about the kubelet.
type Attribute struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Build returns the object without metadata. A NUMA node lists exactly the resources with hints, even with a
// count of 0: for a resource in no NUMA node a scheduler, like the kubelet, expects no alignment. Switches
// list the resources that they have.
func Build(f facts.Facts) *Topology {
	t := &Topology{TypeMeta: metav1.TypeMeta{APIVersion: APIVersion, Kind: Kind}, Zones: []Zone{}}
	t.Policies, t.Attributes = words(f.Kubelet)
	t.Attributes = append(t.Attributes, fingerprint(f.Exclusive)...)
	spec := object.Build(f)
	free := object.Free(spec, f.Gone)
	for _, node := range f.NUMANodes {
		z := Zone{Name: name(node.Number), Type: NUMAZone, Costs: costs(node, f.NUMANodes)}
		z.Resources = append(z.Resources, own(f, node)...)
		for _, r := range spec.Resources {
			if len(r.Hints) > 0 {
				z.Resources = append(z.Resources, devices(r, r.Hints[strconv.Itoa(node.Number)], free[r.Name]))
			}
		}
		t.Zones = append(t.Zones, z)
	}
	for _, on := range spec.Switches {
		if on.Alone {
			continue
		}
		z := Zone{Name: on.Name, Type: SwitchZone}
		if on.NUMA != nil {
			z.Parent = name(*on.NUMA)
		}
		for _, r := range spec.Resources {
			if on.Devices[r.Name] != "" {
				z.Resources = append(z.Resources, devices(r, on.Devices[r.Name], free[r.Name]))
			}
		}
		t.Zones = append(t.Zones, z)
	}
	return t
}

// fingerprint returns a hash of the pods that hold exclusive resources. A scheduler that subtracts pods by
// itself uses it to detect when the object includes all of them (the cache of NodeResourceTopologyMatch).
func fingerprint(pods facts.Exclusive) []Attribute {
	if pods == nil {
		return nil
	}
	of := podfingerprint.NewFingerprint(len(pods))
	for _, pod := range pods {
		_ = of.Add(pod.Namespace, pod.Name) // a hash takes any text
	}
	return []Attribute{
		{podfingerprint.Attribute, of.Sign()},
		{podfingerprint.AttributeMethod, podfingerprint.MethodWithExclusiveResources},
	}
}

func name(node int) string { return fmt.Sprint("node-", node) }

func costs(node facts.NUMANode, all []facts.NUMANode) []Cost {
	var list []Cost
	for i, distance := range node.Distances {
		list = append(list, Cost{name(all[i].Number), int64(distance)})
	}
	return list
}

// devices counts the devices of a resource in a zone.
func devices(r v1alpha1.Resource, here v1alpha1.Set, free map[int]bool) Resource {
	unhealthy, healthy, left := r.Unhealthy.Numbers(), 0, 0
	for _, number := range here.Numbers() {
		if !slices.Contains(unhealthy, number) {
			healthy++
		}
		if free[number] {
			left++
		}
	}
	return counted(r.Name, len(here.Numbers()), healthy, left)
}

func counted(name string, capacity, allocatable, available int) Resource {
	return Resource{name, quantity(capacity), quantity(allocatable), quantity(available)}
}

func quantity(count int) resource.Quantity {
	return *resource.NewQuantity(int64(count), resource.DecimalSI)
}

// own returns the CPUs and the memory of a NUMA node. Schedulers need both, even without exclusive
// assignment: without them no pod fits (resourcesAvailableInAnyNUMANodes in pkg/noderesourcetopology of
// sigs.k8s.io/scheduler-plugins). Of a manager whose state cannot be read none are available, which rejects
// only pods of class Guaranteed (isResourceSetSuitable). Without a state, of another policy or where the
// kubelet's folder is not mounted, nobody is rejected.
func own(f facts.Facts, node facts.NUMANode) []Resource {
	var list []Resource
	if all := node.CPUs; len(all) > 0 {
		allocatable, taken := len(all), 0
		if state, unknown := f.CPUs.Get(); unknown == nil {
			taken, allocatable = cpus(f, state, node)
		} else if !isAbsent(unknown) {
			taken = allocatable
		}
		list = append(list, counted("cpu", len(all), allocatable, max(allocatable-taken, 0)))
	}
	memory, unknown := f.Memory.Get()
	machine := memory.Machine[strconv.Itoa(node.Number)]
	if unknown != nil || len(machine.Memory) == 0 {
		if node.Memory > 0 {
			total := bytes(node.Memory)
			free := total
			if unknown != nil && !isAbsent(unknown) {
				free = bytes(0)
			}
			list = append(list, Resource{"memory", total, total, free})
		}
		return list
	}
	for _, kind := range slices.Sorted(maps.Keys(machine.Memory)) {
		m := machine.Memory[kind]
		list = append(list, Resource{kind, bytes(m.Total), bytes(m.Allocatable), bytes(m.Free)})
	}
	return list
}

// isAbsent reports whether a manager has no state here.
func isAbsent(unknown error) bool {
	return errors.Is(unknown, kubelet.ErrNotRead) || errors.Is(unknown, fs.ErrNotExist)
}

func bytes(count uint64) resource.Quantity {
	return *resource.NewQuantity(int64(min(count, 1<<62)), resource.BinarySI)
}

// cpus returns the numbers of assigned and of allocatable CPUs of a NUMA node. An app container reuses the
// CPUs of its init containers. CPUs that are reserved by number are the first ones (takeByTopology in
// pkg/kubelet/cm/cpumanager).
func cpus(f facts.Facts, state kubelet.CPUState, node facts.NUMANode) (taken, allocatable int) {
	reserved := f.Kubelet.ReservedCPUs
	for _, lower := range f.NUMANodes {
		if lower.Number < node.Number {
			reserved -= len(lower.CPUs)
		}
	}
	allocatable = len(node.CPUs) - min(max(reserved, 0), len(node.CPUs))
	for _, number := range v1alpha1.Set(f.Kubelet.ReservedSystemCPUs).Numbers() {
		if node.CPUs[number] {
			allocatable--
		}
	}
	assigned := topology.CPUSet{}
	for _, containers := range state.Entries {
		for _, set := range containers {
			for _, number := range v1alpha1.Set(set).Numbers() {
				if node.CPUs[number] {
					assigned[number] = true
				}
			}
		}
	}
	return len(assigned), allocatable
}

// words returns the kubelet's policy and scope, in both the old and the new format; nil if unknown.
func words(k model.Kubelet) ([]string, []Attribute) {
	if k.TopologyManagerPolicy == "" {
		return nil, nil
	}
	scope := cmp.Or(k.TopologyManagerScope, "container")
	attributes := []Attribute{
		{"topologyManagerPolicy", k.TopologyManagerPolicy}, {"topologyManagerScope", scope},
	}
	if most := k.TopologyManagerPolicyOptions["max-allowable-numa-nodes"]; most != "" {
		attributes = append(attributes, Attribute{"topologyManagerMaxNUMANodes", most})
	}
	single := map[string]string{"container": "SingleNUMANodeContainerLevel", "pod": "SingleNUMANodePodLevel"}
	old := map[string]string{
		"none": "None", "best-effort": "BestEffort", "restricted": "Restricted", "single-numa-node": single[scope],
	}[k.TopologyManagerPolicy]
	if old == "" {
		return nil, attributes
	}
	return []string{old}, attributes
}
