// SPDX-License-Identifier: Apache-2.0

// Package picture draws a node for people: its PCI tree as boxes inside boxes, the GPUs and NICs on their
// switches, every GPU partition and VF with its state and owner. [Node.SVG] is one self-contained picture,
// [Page] a page around it.
package picture

import (
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// Node is what a picture shows.
type Node struct {
	Title   string
	Summary []string // what is most important, in a few words each
	Tree    *topology.Tree
	Cards   []Card   // in any order
	Notes   []string // what else is to be known, a sentence each
	// Palette is that of a picture that is drawn again and again; nil for one, whose legend has no more than it
	// needs.
	Palette Palette
}

// Kind says which half of a pair a card's devices are.
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

// whole is whether the card itself is its one device, and not what devices are parts of.
func (c *Card) whole() bool {
	return len(c.Devices) == 1 && (c.Kind == GPU || c.Devices[0].Address == c.Address)
}

// Device is one device as the kubelet knows it.
type Device struct {
	ID       string
	Address  topology.Address // the function that it is, or is a part of
	Detail   string           // names of a VF's RDMA device and netdev
	Resource string           // "amd.com/gpu"; "" where it is not known
	State    State
	Owner    string // namespace/pod/container; "" where it is not known
}

// State is what is known of a device, in the words of "tandem status".
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

// describe says everything of a device in a line.
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

// Names are those of the RDMA devices and netdevs of a function.
func Names(tree *topology.Tree, address topology.Address) string {
	d, ok := tree.Device(address)
	if !ok {
		return ""
	}
	return strings.Join(slices.Concat(d.RDMA, d.Netdevs), " ")
}
