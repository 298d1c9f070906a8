// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Results of switches without a computed choice.
const (
	resultDropped = "no longer known: dropped for newer decisions"
	resultFixed   = "nothing to choose: all devices were required or already held"
)

// decisionInput is what a decision had to choose from, and the choice. The decision gets the options later:
// their results take longer than the decision.
type decisionInput struct {
	decision *decision
	tree     *topology.Tree
	request  placement.Request
	choice   placement.Choice
}

// countDevices returns the number of devices in the lists of inputs.
func countDevices(inputs []*decisionInput) (n int) {
	for _, q := range inputs {
		for _, half := range slices.Concat(q.request.GPUs, q.request.VFs) {
			n += len(half.Held) + len(half.Free)
		}
		for _, d := range []placement.Devices{q.request.Spare, q.request.Taken} {
			n += len(d.GPUs) + len(d.VFs)
		}
	}
	return n
}

// addOptions computes the options of the latest decisions. The goroutine that saves the state does so after
// each Allocate, and a query before its answer; who comes meanwhile waits for the result.
func (c *committedState) addOptions() {
	c.computing.Lock()
	defer c.computing.Unlock()
	var inputs []*decisionInput
	c.locked(func() { inputs = slices.Clone(c.history.inputs) })
	for _, q := range inputs {
		options := q.options(true)
		c.locked(func() { c.history.setOptions(q, options) })
	}
}

// hasChoice reports whether a request lacks devices.
func hasChoice(r placement.Request) bool {
	lacks := func(h placement.Half) bool { return len(h.Held) < h.Count }
	return slices.ContainsFunc(r.GPUs, lacks) || slices.ContainsFunc(r.VFs, lacks)
}

// options returns the switches with free devices, by name. Without results, each result is resultDropped.
func (q *decisionInput) options(results bool) []*api.Option {
	found := map[string]*api.Option{}
	at := func(d placement.Device) *api.Option {
		name := q.tree.Switch(d.Address)
		if found[name] == nil {
			found[name] = &api.Option{Switch: name}
		}
		return found[name]
	}
	for _, d := range freeOf(q.request.GPUs) {
		o := at(d)
		o.FreeGpus++
		if slices.Contains(q.choice.GPUs, d) {
			o.TakenGpus++
		}
	}
	for _, d := range freeOf(q.request.VFs) {
		o := at(d)
		o.FreeVfs++
		if slices.Contains(q.choice.VFs, d) {
			o.TakenVfs++
		}
	}
	sorted := make([]*api.Option, 0, len(found))
	for _, name := range slices.Sorted(maps.Keys(found)) {
		o := found[name]
		if !results {
			o.Result = resultDropped
		} else if !hasChoice(q.request) { // the choice would consist of held devices, on any switch
			o.Result = resultFixed
		} else if choice, err := placement.Choose(q.tree, q.onSwitch(name)); err == nil {
			o.Result = choice.Reason
		}
		sorted = append(sorted, o)
	}
	return sorted
}

// onSwitch returns the request in which only devices of one switch may be chosen. Other free devices become
// spare.
func (q *decisionInput) onSwitch(name string) placement.Request {
	r := q.request
	r.GPUs, r.Spare.GPUs = q.halvesOnSwitch(r.GPUs, r.Spare.GPUs, name)
	r.VFs, r.Spare.VFs = q.halvesOnSwitch(r.VFs, r.Spare.VFs, name)
	return r
}

func (q *decisionInput) halvesOnSwitch(
	halves []placement.Half, spare []placement.Device, name string,
) ([]placement.Half, []placement.Device) {
	narrow := slices.Clone(halves)
	spare = slices.Clone(spare)
	for i, half := range halves {
		narrow[i].Free = nil
		for _, d := range half.Free {
			if q.tree.Switch(d.Address) == name {
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
