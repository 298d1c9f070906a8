// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/tandem-k8s/tandem/topology"
)

// Change is a change of a machine.
type Change struct {
	What What
	Of   string // the number of VFs on each PF, or the address of a function; "" for the driver
}

// What is a kind of change.
type What string

// Kinds of changes.
const (
	NumberOfVFs What = "the number of VFs changes"
	Driver      What = "the driver of the GPUs goes or comes"
	Errors      What = "a PF or GPU has errors"
	Failure     What = "a PF or GPU fails for a while"
	OffTheBus   What = "a GPU falls off the bus"
)

// Draw returns a random change: GPUs, their driver or VFs vanish or come back, or a PF or GPU has errors;
// false for none.
func (h *Machine) Draw(random *rand.Rand) (Change, bool) {
	switch random.IntN(5) {
	case 0:
		return Change{NumberOfVFs, strconv.Itoa(3 - h.vfs)}, true
	case 1:
		return Change{What: Driver}, true
	case 2:
		return Change{Errors, h.anyFunction(random).String()}, true
	case 3:
		return Change{Failure, h.anyFunction(random).String()}, true
	default:
		found, _ := h.GPUs()
		if len(found) == 0 || len(h.gone) > 1 {
			return Change{}, false
		}
		return Change{OffTheBus, found[random.IntN(len(found))].Address.String()}, true
	}
}

// Apply changes the machine.
func (h *Machine) Apply(c Change) error {
	switch c.What {
	case NumberOfVFs:
		vfs, err := strconv.Atoi(c.Of)
		if err != nil {
			return fmt.Errorf("change the number of VFs: %w", err)
		}
		return h.setVFs(vfs)
	case Driver:
		h.change(func() { h.noDriver = !h.noDriver })
	case OffTheBus:
		h.change(func() { h.gone[c.Of] = true })
	case Errors, Failure:
		function, err := topology.ParseAddress(c.Of)
		if err != nil {
			return fmt.Errorf("change a function: %w", err)
		}
		h.countError(function, map[What]string{Errors: "aer_dev_nonfatal", Failure: "aer_dev_fatal"}[c.What])
	default:
		return fmt.Errorf("change the machine: %q is unknown", c.What)
	}
	return nil
}
