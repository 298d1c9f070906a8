// SPDX-License-Identifier: Apache-2.0

package model

import (
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/topology"
)

// Node is a node without the places and the holders of its devices.
type Node struct {
	Kubelet   Kubelet
	NUMANodes []NUMANode // of the machine
	Alignment Alignment
	Resources []Resource // by name
}

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

// Resource is a resource with its devices, by their numbers.
type Resource struct {
	Name    string
	Kind    devicemanager.Kind
	Devices []Device
}

// Device is a device as the kubelet knows it.
type Device struct {
	NUMA    topology.NUMANode // unknown without TopologyInfo
	Healthy bool
}
