// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/test/disk"
)

// storeHistory is a run folder with the states that its file may have.
type storeHistory struct {
	*crashed
	server   *store[example]
	state    int          // number of the last state
	possible map[int]bool // states that the next server may load; 0 for none
}

// Servers write, are killed at any step, start again and lose power: the next server loads the last state
// that was written without an error, or a later one; after a power failure none.
func TestAnyOrder(t *testing.T) {
	t.Parallel()
	disk.Simulate(t, disk.Points(StateFile, disk.Write), func(t *testing.T, d *disk.Disk, random *rand.Rand) {
		h := &storeHistory{crashed: newCrashed(t, d), possible: map[int]bool{0: true}}
		h.restart(false)
		for range 100 {
			switch random.IntN(8) {
			case 0:
				h.restart(true)
			case 1:
				h.powerFails()
			default:
				h.save(true)
			}
			if t.Failed() {
				return
			}
		}
		h.save(false)
		h.restart(false)
	})
}

// restart starts servers until one of them lives, and checks the state that each of them loads.
func (h *storeHistory) restart(faults bool) {
	h.t.Helper()
	h.server = nil
	for h.server == nil {
		struck := h.during(faults, func() {
			s, err := h.open()
			if err != nil {
				return // the daemon tries again
			}
			h.check(s.load())
			h.server = s
		})
		if struck.Kills() {
			h.server = nil
		}
	}
}

// during calls a function, with or without faults.
func (h *storeHistory) during(faults bool, do func()) disk.Fault {
	if faults {
		return h.disk.Randomly(do)
	}
	do()
	return disk.Nothing
}

// check checks a loaded state, which then is the only possible one.
func (h *storeHistory) check(loaded example, ok bool) {
	h.t.Helper()
	state := 0
	if ok {
		if _, err := fmt.Sscan(loaded.Pods[0], &state); err != nil || len(loaded.Pods) != state%5+1 {
			h.t.Errorf("loaded the partial state %v", loaded)
		}
	}
	if !h.possible[state] {
		h.t.Errorf("loaded state %d, want one of %v; log %q", state, h.possible, h.log.String())
	}
	if state > 0 {
		h.possible = map[int]bool{state: true}
	}
}

// save writes the next state.
func (h *storeHistory) save(faults bool) {
	h.t.Helper()
	h.state++
	value := example{slices.Repeat([]string{fmt.Sprint(h.state)}, h.state%5+1)}
	struck := h.during(faults, func() { h.server.write(value) })
	h.possible[h.state] = true
	switch {
	case struck.Kills():
		h.restart(faults)
	case !h.server.failing:
		h.possible = map[int]bool{h.state: true}
	}
}

func (h *storeHistory) powerFails() {
	h.t.Helper()
	if err := h.disk.PowerFailure(); err != nil {
		h.t.Fatal(err)
	}
	h.boot, h.possible = fmt.Sprint("boot after state ", h.state), map[int]bool{0: true}
	h.restart(true)
}
