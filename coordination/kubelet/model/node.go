// SPDX-License-Identifier: Apache-2.0

// Package model is what decides the admission of a pod on a node, and the Topology Manager, as pure
// functions.
//
// The settings of a [Kubelet], the [NUMANode]s of the machine, the rule of Tandem's plugins for pairs
// ([Alignment]), and the devices as the kubelet knows them ([Resource]) decide: a scheduler reads them of a
// published node, predictions on the node itself from its files. [Rule] is the Topology Manager. Package
// devicemanager is the kubelet's device manager on this model.
package model

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// NUMANode is a NUMA node of the machine, with its distances to all nodes, in their order; none if unknown.
type NUMANode struct {
	Number    int
	Distances []int
}

// Alignment is the rule of the node's plugins for pairs on different switches, in the words of their flags.
type Alignment struct {
	// Required is set if the plugins refuse a pod whose annotation does not say otherwise (--alignment).
	Required bool `json:"required,omitempty"`
	// OptOut are the namespaces whose pods may say otherwise (--alignment-opt-out): "all", or names with commas
	// between; "" for none.
	OptOut string `json:"optOut,omitempty"`
}

// Resource is a resource with all its devices, healthy or not, by their numbers.
type Resource struct {
	Name    string
	Kind    Kind
	Devices []Device
}

// Device is a device as the kubelet knows it, and its place where a choice depends on it.
type Device struct {
	placement.Device
	NUMA    topology.NUMANode // unknown without TopologyInfo
	Healthy bool
}

// Kubelet is how the kubelet of a node admits pods: fields of its configuration
// (k8s.io/kubelet/config/v1beta1), under their own names.
type Kubelet struct {
	// TopologyManagerPolicy is empty if it could not be read; refusals then cannot be predicted.
	TopologyManagerPolicy        string            `json:"topologyManagerPolicy,omitempty"`
	TopologyManagerScope         string            `json:"topologyManagerScope,omitempty"`
	TopologyManagerPolicyOptions map[string]string `json:"topologyManagerPolicyOptions,omitempty"`
	CPUManagerPolicy             string            `json:"cpuManagerPolicy,omitempty"`
	CPUManagerPolicyOptions      map[string]string `json:"cpuManagerPolicyOptions,omitempty"`
	ReservedSystemCPUs           string            `json:"reservedSystemCPUs,omitempty"`
	// ReservedCPUs is the number of CPUs that the static policy reserves (of kubeReserved and systemReserved,
	// rounded up) if ReservedSystemCPUs is empty.
	ReservedCPUs        int    `json:"reservedCPUs,omitempty"`
	MemoryManagerPolicy string `json:"memoryManagerPolicy,omitempty"`
	// Version is the kubelet's version, "v1.37.1"; empty if unknown.
	Version string `json:"version,omitempty"`
}

// Scopes of the Topology Manager (pkg/kubelet/cm/topologymanager/scope.go).
const (
	scopeContainer = "container"
	scopePod       = "pod"
)

// TopologyManager returns the Topology Manager of a kubelet on a machine. It returns an error if a setting is
// unknown or not understood, such as an option of a newer kubelet: then nothing can be predicted.
func (k Kubelet) TopologyManager(nodes []NUMANode) (m TopologyManager, err error) {
	if k.TopologyManagerPolicy == "" {
		return m, errors.New("the policy of the kubelet's Topology Manager is not known")
	}
	m.Rule = Documented(nodes)
	m.Rule.Policy, err = ParsePolicy(k.TopologyManagerPolicy)
	if err != nil {
		return m, err
	}
	switch k.TopologyManagerScope {
	case "", scopeContainer:
	case scopePod:
		m.ScopePod = true
	default:
		return m, fmt.Errorf("parse scope %q: want %s or %s", k.TopologyManagerScope, scopeContainer, scopePod)
	}
	return m, k.readOptions(&m.Rule, nodes)
}

// Documented returns the documented rule of a Topology Manager, by which devices are chosen, and nobody is
// refused, where the kubelet's own is unknown.
func Documented(nodes []NUMANode) Rule {
	rule := Rule{Policy: Restricted}
	for _, n := range nodes {
		rule.Machine |= 1 << n.Number
	}
	return rule
}

// readOptions reads the options of the policy (policy_options.go of the Topology Manager).
func (k Kubelet) readOptions(rule *Rule, nodes []NUMANode) error {
	for name, value := range k.TopologyManagerPolicyOptions {
		var err error
		switch name {
		case "prefer-closest-numa-nodes":
			var closest bool
			closest, err = strconv.ParseBool(value)
			if closest {
				rule.Distances = distancesByNumber(nodes)
			}
		case "max-allowable-numa-nodes":
			rule.MaxNodes, err = strconv.Atoi(value)
		default:
			err = errors.New("it is not known")
		}
		if err != nil {
			return fmt.Errorf("read policy option %.64q: %w", name, err)
		}
	}
	return nil
}

// distancesByNumber returns the distances between nodes by number.
func distancesByNumber(nodes []NUMANode) [][]int {
	most := 0
	for _, n := range nodes {
		most = max(most, n.Number)
	}
	by := make([][]int, most+1)
	for _, a := range nodes {
		by[a.Number] = make([]int, most+1)
		for i, b := range nodes {
			if i < len(a.Distances) {
				by[a.Number][b.Number] = a.Distances[i]
			}
		}
	}
	return by
}

// HintedNodes returns the numbers of the NUMA nodes over which hints of CPUs and devices range, ascending:
// those with CPUs. The others, for example the memory of GPUs on Grace, have neither CPUs nor devices.
// Without lists of CPUs, or with unknown ones, all nodes count.
func HintedNodes(sys fs.FS, tree *topology.Tree) []int {
	cpus, err := topology.CPUs(sys)
	if nodes := topology.NodesWithCPUs(cpus); err == nil && len(nodes) > 0 {
		return nodes
	}
	return tree.NUMANodes()
}

// ReadNUMANodes reads the NUMA nodes of a machine, by their numbers
// (Documentation/ABI/stable/sysfs-devices-node).
func ReadNUMANodes(sys fs.FS, numbers []int) []NUMANode {
	var nodes []NUMANode
	for _, number := range slices.Sorted(slices.Values(numbers)) {
		node := NUMANode{Number: number}
		if distances := readDistances(sys, number); len(distances) == len(numbers) { // else unknown
			node.Distances = distances
		}
		nodes = append(nodes, node)
	}
	return nodes
}

// readDistances reads the distances of a node to all nodes, those that are offline too; nil if unknown.
func readDistances(sys fs.FS, number int) (distances []int) {
	content, err := fs.ReadFile(sys, fmt.Sprintf("devices/system/node/node%d/distance", number))
	if err != nil {
		return nil
	}
	for word := range strings.FieldsSeq(string(content)) {
		distance, err := strconv.Atoi(word)
		if err != nil {
			return nil
		}
		distances = append(distances, distance)
	}
	return distances
}
