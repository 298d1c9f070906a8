// SPDX-License-Identifier: Apache-2.0

// Package picture draws a node for people: the PCI tree as nested boxes, the GPUs and NICs on their switches,
// every GPU partition and VF with its state and owner. [Node.SVG] returns a self-contained picture, [Page] a
// page around it.
package picture

import (
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// Node is the content of a picture.
type Node struct {
	Title   string
	Summary []string // the most important facts, a few words each
	Tree    *topology.Tree
	Cards   []Card   // in any order
	Notes   []string // further facts, a sentence each
	// Rejected are pods that hold nothing, as owners without a container ("NAMESPACE/POD/"); only a page has
	// them.
	Rejected []string
	Width    int // of the picture of SVG in pixels, if the switches fit; 0 is Wide
	// Palette is for a picture that is drawn repeatedly. With nil, the legend has only the looks in use.
	Palette Palette
}

// Kind is the half of a pair to which a card's devices belong.
type Kind int

// The kinds of card.
const (
	GPU Kind = iota
	NIC
)

// Card is a GPU or a NIC.
type Card struct {
	Kind    Kind
	Name    string // "GPU0"; no two cards have the same
	Detail  string // model, RDMA device
	Address topology.Address
	Devices []Device // what can be given to containers: the GPU or its partitions, the VFs
}

// whole reports whether the card itself is its only device, instead of being divided into devices.
func (c *Card) whole() bool {
	return len(c.Devices) == 1 && (c.Kind == GPU || c.Devices[0].Address == c.Address)
}

// Device is a device as the kubelet knows it.
type Device struct {
	ID       string
	Address  topology.Address // of the device's function, or of the function that contains it
	Detail   string           // names of a VF's RDMA device and netdev
	Resource string           // "amd.com/gpu"; "" for unknown
	State    State
	Owner    string // namespace/pod/container; "" for unknown
}

// State is the state of a device, in the words of "tandem status".
type State string

// The states of a device.
const (
	Unknown            State = ""
	Free               State = "free"
	Stranded           State = "stranded" // free, and no device of the other kind is free on its switch
	Planned            State = "planned"
	Allocated          State = "allocated"
	Unhealthy          State = "unhealthy"
	AllocatedUnhealthy State = "allocated, unhealthy"
)

// describe returns all facts about a device in one line.
func (d *Device) describe() string {
	state := string(d.State)
	if d.State == Stranded {
		state = "stranded: free, but no partner is free on its switch"
	}
	said := slices.DeleteFunc([]string{d.ID, d.Detail, d.Resource, state, d.Owner}, func(s string) bool {
		return s == ""
	})
	return strings.Join(said, ", ")
}

// Names returns the names of a function's RDMA devices and netdevs.
func Names(tree *topology.Tree, address topology.Address) string {
	d, ok := tree.Device(address)
	if !ok {
		return ""
	}
	return strings.Join(slices.Concat(d.RDMA, d.Netdevs), " ")
}
