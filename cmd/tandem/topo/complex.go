// SPDX-License-Identifier: Apache-2.0

package topo

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// Complex is a set of GPUs and NICs that are near each other without a switch between root port and devices,
// or that would be near without the fault.
type Complex struct {
	Kind topology.Kind      `json:"kind"` // dma, c2c or inline
	GPUs []topology.Address `json:"gpus"`
	NICs []topology.Address `json:"nics"`
	// Function is the DMA function of kind dma.
	Function topology.Address `json:"function,omitzero"`
	// Switch is the upstream port of the NIC's switch.
	Switch topology.Address `json:"switch,omitzero"`
	Fault  string           `json:"fault,omitempty"` // the reason why no NIC is near the GPUs
}

func newComplex(c topology.Complex) Complex {
	return Complex{
		Kind: c.Kind, GPUs: append([]topology.Address{}, c.GPUs...), NICs: append([]topology.Address{}, c.NICs...),
		Function: c.Function, Switch: c.Switch, Fault: c.Fault,
	}
}

// writeComplexes writes a line for each complex.
func (m *Matrix) writeComplexes(out *bytes.Buffer) {
	for i, c := range m.Complexes {
		if i == 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintf(out, "%s: %s with %s", c.title(), list(c.GPUs, "no GPU"), list(c.NICs, "no NIC"))
		if c.Fault != "" {
			fmt.Fprintf(out, "; not near: %s", c.Fault)
		}
		fmt.Fprintln(out)
	}
}

func (c Complex) title() string {
	switch {
	case c.Function != topology.Address{}:
		return fmt.Sprintf("%s, DMA function %s", c.Kind, c.Function)
	case c.Switch != topology.Address{}:
		return fmt.Sprintf("%s, switch %s", c.Kind, c.Switch)
	default:
		return string(c.Kind)
	}
}

// list returns addresses with commas, or a text for none.
func list(addresses []topology.Address, none string) string {
	var names []string
	for _, a := range addresses {
		names = append(names, a.String())
	}
	if len(names) == 0 {
		return none
	}
	return strings.Join(names, ", ")
}
