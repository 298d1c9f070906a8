// Package picture draws a node for people: its PCI tree as boxes inside boxes, the GPUs and NICs on their switches, every GPU
// partition and VF with its state and owner. [Node.SVG] is one self-contained picture, [Node.Page] a page around it.
package picture

import "github.com/tandem-k8s/tandem/topology"

// Node is what a picture shows.
type Node struct {
	Title string
	Tree  *topology.Tree
	Cards []Card // in any order
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
	Name    string // "GPU0"
	Detail  string // model, RDMA device
	Address topology.Address
	Devices []Device // what can be given to containers: the GPU or its partitions, the VFs
}

// Device is one device as the kubelet knows it.
type Device struct {
	ID    string
	State State
	Owner string // namespace/pod/container; "" where it is not known
}

// State is what is known of a device.
type State int

// The states of a device. One whose state is unknown counts neither as free nor as in use.
const (
	Unknown State = iota
	Free
	Planned
	Allocated
	Unhealthy
)

var stateWords = [...]string{Unknown: "", Free: "free", Planned: "planned", Allocated: "allocated", Unhealthy: "unhealthy"}

// describe says everything of a device in a line.
func (d *Device) describe(stranded bool) string {
	text := d.ID
	if word := stateWords[d.State]; word != "" {
		text += ", " + word
	}
	if stranded {
		text += ", stranded: no free partner on its switch"
	}
	if d.Owner != "" {
		text += ", " + d.Owner
	}
	return text
}

// has reports whether a device of the card is in a state.
func (c *Card) has(s State) bool {
	for i := range c.Devices {
		if c.Devices[i].State == s {
			return true
		}
	}
	return false
}
