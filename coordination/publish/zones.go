// SPDX-License-Identifier: Apache-2.0

package publish

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
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/topology"
)

// zonesVersion and zonesKind are those of a NodeResourceTopology; zonesCollection is its path at the API
// server.
const (
	zonesVersion    = "topology.node.k8s.io/v1alpha2"
	zonesKind       = "NodeResourceTopology"
	zonesCollection = "/apis/" + zonesVersion + "/noderesourcetopologies"
)

// ResourceTopology is a NodeResourceTopology, which schedulers read (topology.node.k8s.io/v1alpha2,
// github.com/k8stopologyawareschedwg/noderesourcetopology-api).
type ResourceTopology struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Policies   []string    `json:"topologyPolicies,omitempty"` // the field of v1alpha1, for Koordinator
	Zones      []Zone      `json:"zones"`
	Attributes []Attribute `json:"attributes,omitempty"`
}

// Types of zones: NUMA nodes, and switches below them.
const (
	numaZone   = "Node"
	switchZone = "Switch"
)

// Zone is a NUMA node, "node-0", or a switch, by its address.
type Zone struct {
	Name      string         `json:"name"`
	Type      string         `json:"type"`
	Parent    string         `json:"parent,omitempty"`
	Costs     []Cost         `json:"costs,omitempty"`
	Resources []ZoneResource `json:"resources,omitempty"`
}

// Cost is the distance of another zone (SLIT).
type Cost struct {
	Name  string `json:"name"`
	Value int64  `json:"value"`
}

// ZoneResource counts the devices of a zone: all devices, the healthy ones, and the free ones among those.
type ZoneResource struct {
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

// BuildZones returns the NodeResourceTopology of a node, without metadata. A NUMA node lists exactly the
// resources with hints, even with a count of 0: for a resource in no NUMA node a scheduler, like the kubelet,
// expects no alignment. Switches list the resources that they have.
func BuildZones(f Facts) *ResourceTopology {
	t := &ResourceTopology{TypeMeta: metav1.TypeMeta{APIVersion: zonesVersion, Kind: zonesKind}, Zones: []Zone{}}
	t.Policies, t.Attributes = policyWords(f.Spec.Kubelet)
	t.Attributes = append(t.Attributes, hashPods(f.Exclusive)...)
	free := freeDevices(f.Spec, f.Gone)
	for _, node := range f.NUMANodes {
		z := Zone{Name: zoneName(node.Number), Type: numaZone, Costs: zoneCosts(node, f.NUMANodes)}
		z.Resources = append(z.Resources, cpusAndMemory(f, node)...)
		for _, r := range f.Spec.Resources {
			if len(r.Hints) > 0 {
				z.Resources = append(z.Resources, countDevices(r, r.Hints[strconv.Itoa(node.Number)], free[r.Name]))
			}
		}
		t.Zones = append(t.Zones, z)
	}
	for _, on := range f.Spec.Switches {
		if on.Alone {
			continue
		}
		z := Zone{Name: on.Name, Type: switchZone}
		if on.NUMA != nil {
			z.Parent = zoneName(*on.NUMA)
		}
		for _, r := range f.Spec.Resources {
			if on.Devices[r.Name] != "" {
				z.Resources = append(z.Resources, countDevices(r, on.Devices[r.Name], free[r.Name]))
			}
		}
		t.Zones = append(t.Zones, z)
	}
	return t
}

// hashPods returns a hash of the pods that hold exclusive resources. A scheduler that subtracts pods by
// itself uses it to detect when the object includes all of them (the cache of NodeResourceTopologyMatch).
func hashPods(pods Exclusive) []Attribute {
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

func zoneName(node int) string { return fmt.Sprint("node-", node) }

func zoneCosts(node v1alpha1.NUMANode, all []v1alpha1.NUMANode) []Cost {
	var list []Cost
	for i, distance := range node.Distances {
		list = append(list, Cost{zoneName(all[i].Number), int64(distance)})
	}
	return list
}

// countDevices counts the devices of a resource in a zone.
func countDevices(r v1alpha1.Resource, here v1alpha1.Set, free map[int]bool) ZoneResource {
	unhealthy, healthy, left := r.Unhealthy.Numbers(), 0, 0
	for _, number := range here.Numbers() {
		if !slices.Contains(unhealthy, number) {
			healthy++
		}
		if free[number] {
			left++
		}
	}
	return newZoneResource(r.Name, len(here.Numbers()), healthy, left)
}

func newZoneResource(name string, capacity, allocatable, available int) ZoneResource {
	return ZoneResource{name, newQuantity(capacity), newQuantity(allocatable), newQuantity(available)}
}

func newQuantity(count int) resource.Quantity {
	return *resource.NewQuantity(int64(count), resource.DecimalSI)
}

// cpusAndMemory returns the CPUs and the memory of a NUMA node. Schedulers need both, even without exclusive
// assignment: without them no pod fits (resourcesAvailableInAnyNUMANodes in pkg/noderesourcetopology of
// sigs.k8s.io/scheduler-plugins). Of a manager whose state cannot be read none are available, which rejects
// only pods of class Guaranteed (isResourceSetSuitable). Without a state, of another policy or where the
// kubelet's folder is not mounted, nobody is rejected.
func cpusAndMemory(f Facts, node v1alpha1.NUMANode) []ZoneResource {
	var list []ZoneResource
	if all := node.CPUs.Numbers(); len(all) > 0 {
		allocatable, taken := len(all), 0
		if state, unknown := f.CPUs.Get(); unknown == nil {
			taken, allocatable = countCPUs(f, state, node)
		} else if !isAbsent(unknown) {
			taken = allocatable
		}
		list = append(list, newZoneResource("cpu", len(all), allocatable, max(allocatable-taken, 0)))
	}
	memory, unknown := f.Memory.Get()
	machine := memory.Machine[strconv.Itoa(node.Number)]
	if unknown != nil || len(machine.Memory) == 0 {
		if read := node.Memory["memory"].Total; read > 0 {
			total := byteQuantity(read)
			free := total
			if unknown != nil && !isAbsent(unknown) {
				free = byteQuantity(0)
			}
			list = append(list, ZoneResource{"memory", total, total, free})
		}
		return list
	}
	for _, kind := range slices.Sorted(maps.Keys(machine.Memory)) {
		m := machine.Memory[kind]
		list = append(list, ZoneResource{
			kind, byteQuantity(m.Total), byteQuantity(m.Allocatable), byteQuantity(m.Free),
		})
	}
	return list
}

// isAbsent reports whether a manager has no state here.
func isAbsent(unknown error) bool {
	return errors.Is(unknown, kubelet.ErrNotRead) || errors.Is(unknown, fs.ErrNotExist)
}

func byteQuantity(count uint64) resource.Quantity {
	return *resource.NewQuantity(int64(min(count, 1<<62)), resource.BinarySI)
}

// countCPUs returns the numbers of assigned and of allocatable CPUs of a NUMA node. An app container reuses
// the CPUs of its init containers. CPUs that are reserved by number are the first ones (takeByTopology in
// pkg/kubelet/cm/cpumanager).
func countCPUs(f Facts, state kubelet.CPUState, node v1alpha1.NUMANode) (taken, allocatable int) {
	reserved, all := f.Spec.Kubelet.ReservedCPUs, node.CPUs.Numbers()
	for _, lower := range f.NUMANodes {
		if lower.Number < node.Number {
			reserved -= len(lower.CPUs.Numbers())
		}
	}
	allocatable = len(all) - min(max(reserved, 0), len(all))
	for _, number := range v1alpha1.Set(f.Spec.Kubelet.ReservedSystemCPUs).Numbers() {
		if slices.Contains(all, number) {
			allocatable--
		}
	}
	assigned := topology.CPUSet{}
	for _, containers := range state.Entries {
		for _, set := range containers {
			for _, number := range v1alpha1.Set(set).Numbers() {
				if slices.Contains(all, number) {
					assigned[number] = true
				}
			}
		}
	}
	return len(assigned), allocatable
}

// policyWords returns the kubelet's policy and scope, in both the old and the new format; nil if unknown.
func policyWords(k model.Kubelet) ([]string, []Attribute) {
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
