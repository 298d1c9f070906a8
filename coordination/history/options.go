// SPDX-License-Identifier: Apache-2.0

package history

import (
	"cmp"
	"slices"

	"github.com/tandem-k8s/tandem/topology/placement"
)

// option is the state of a switch at the time of a decision.
type option struct {
	name                string
	gpus, vfs           int    // free devices
	takenGPUs, takenVFs int    // chosen or planned free devices
	result              string // the choice if no other switch had free devices
}

// Results of switches without a computed choice.
const (
	resultDropped = "no longer known: dropped for newer decisions"
	resultFixed   = "nothing to choose: all devices were required or already held"
)

// hasChoice reports whether a request lacks devices.
func hasChoice(r placement.Request) bool {
	lacks := func(h placement.Half) bool { return len(h.Held) < h.Count }
	return slices.ContainsFunc(r.GPUs, lacks) || slices.ContainsFunc(r.VFs, lacks)
}

// options returns the switches with free devices, by name. Without results, each result is resultDropped.
func (e *Decision) options(results bool) []option {
	request := e.Request
	if e.compact != nil {
		request = e.compact.expand()
	}
	found := map[string]*option{}
	at := func(d placement.Device) *option {
		name := e.Tree.Switch(d.Address)
		if found[name] == nil {
			found[name] = &option{name: name}
		}
		return found[name]
	}
	for _, d := range freeOf(request.GPUs) {
		o := at(d)
		o.gpus++
		if slices.Contains(e.Choice.GPUs, d) {
			o.takenGPUs++
		}
	}
	for _, d := range freeOf(request.VFs) {
		o := at(d)
		o.vfs++
		if slices.Contains(e.Choice.VFs, d) {
			o.takenVFs++
		}
	}
	sorted := make([]option, 0, len(found))
	for name, o := range found {
		if !results {
			o.result = resultDropped
		} else if !hasChoice(request) { // the choice would consist of held devices, on any switch
			o.result = resultFixed
		} else if choice, err := placement.Choose(e.Tree, e.onSwitch(request, name)); err == nil {
			o.result = choice.Reason
		}
		sorted = append(sorted, *o)
	}
	slices.SortFunc(sorted, func(a, b option) int { return cmp.Compare(a.name, b.name) })
	return sorted
}

// onSwitch returns a request in which only devices of one switch may be chosen. Other free devices become
// spare.
func (e *Decision) onSwitch(r placement.Request, name string) placement.Request {
	r.GPUs, r.Spare.GPUs = e.halvesOnSwitch(r.GPUs, r.Spare.GPUs, name)
	r.VFs, r.Spare.VFs = e.halvesOnSwitch(r.VFs, r.Spare.VFs, name)
	return r
}

func (e *Decision) halvesOnSwitch(
	halves []placement.Half, spare []placement.Device, name string,
) ([]placement.Half, []placement.Device) {
	narrow := slices.Clone(halves)
	spare = slices.Clone(spare)
	for i, half := range halves {
		narrow[i].Free = nil
		for _, d := range half.Free {
			if e.Tree.Switch(d.Address) == name {
				narrow[i].Free = append(narrow[i].Free, d)
			} else {
				spare = append(spare, d)
			}
		}
	}
	return narrow, spare
}

func freeOf(halves []placement.Half) []placement.Device {
	var free []placement.Device
	for _, half := range halves {
		free = append(free, half.Free...)
	}
	return free
}
