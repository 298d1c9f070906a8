// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"fmt"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/dra/claims"
	"github.com/tandem-k8s/tandem/dra/inventory"
	"github.com/tandem-k8s/tandem/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// view is what there is at one moment, and what is published of it. It never changes.
type view struct {
	State claims.State
	Gates features // with which it was built
	Bound map[string]string
	// what else it was made of
	looks   int
	holders map[string]string
	inUse   map[string]string
	// why it is not known who has which devices, and never was: then nothing is published or prepared
	unread error
	// others are devices that are not published, by name: those that would be if the cluster could do something
	// else, and those that are left out because it lacks taints.
	others map[string]pool.Device
}

// notes are what people are told of a view.
func (v *view) notes() []string {
	notes := slices.Concat(v.Gates.notes(), v.State.Pool.Notes)
	if v.unread != nil {
		notes = append(notes, fmt.Sprintf("nothing is published: %v", v.unread))
	}
	return notes
}

// isKnown reports whether a view can be published.
func (v *view) isKnown() bool { return v.Gates.Known && v.unread == nil }

// sources are what has been looked at, and what tells that it is no longer so.
type sources struct {
	machine   inventory.Machine // without those who hold devices
	gpus, vfs <-chan struct{}   // nil for what the node does not have
}

// look finds what there is.
func (d *Driver) look() (sources, error) {
	var found sources
	var offered map[string][]gpu.Device
	var in []pools.Pool
	of := inventory.Sources{Sys: d.Host.Sys}
	if d.GPUs != nil {
		offered, of.Links, found.gpus = d.GPUs.All()
	}
	if d.VFs != nil {
		in, found.vfs = d.VFs.All()
	}
	tree, err := d.Tree()
	if err != nil {
		return found, err
	}
	of.Tree, of.GPUs, of.Pools = tree, offered, in
	found.machine = inventory.New(of)
	return found, nil
}

// follow puts together what there is, and again whenever that is something else, until ctx is done. It alone
// does so.
func (d *Driver) follow(ctx context.Context, now sources) error {
	d.machine = now.machine
	for {
		d.put()
		select {
		case <-ctx.Done():
			return nil
		case answer := <-d.asks:
			d.put()
			close(answer)
			continue
		case <-d.build:
			continue
		case <-now.gpus:
		case <-now.vfs:
		}
		seen, err := d.look()
		if err != nil {
			d.complain("keep the devices as they were found before", err)
			seen.machine = d.machine
		}
		now, d.machine = seen, seen.machine
		d.looks++
	}
}

// anew has what there is put together, and waits for that.
func (d *Driver) anew(ctx context.Context) error {
	answer := make(chan struct{})
	select {
	case d.asks <- answer:
	case <-ctx.Done():
		return fmt.Errorf("put together what the node has: no answer: %w", ctx.Err())
	}
	<-answer
	return nil
}

// put makes a new view of what was looked at, unless it would be the same.
func (d *Driver) put() {
	holders, gates, last := d.holders.get(), d.gates.features(), d.newest.get()
	bound, inUse, unread := d.preparer.Bound()
	if unread != nil {
		d.complain("what claims have is as it was known before", unread)
		bound, inUse = last.Bound, last.inUse
		if unread = fmt.Errorf("it is not known what claims have: %w", unread); bound != nil {
			unread = nil
		}
	}
	if holders == nil && unread == nil {
		unread = errUnrecorded
	}
	if last.State.Pool.Devices != nil && last.looks == d.looks && last.Gates == gates &&
		maps.Equal(last.holders, holders) && maps.Equal(last.Bound, bound) && maps.Equal(last.inUse, inUse) &&
		fmt.Sprint(last.unread) == fmt.Sprint(unread) {
		return
	}
	machine := withHolders(d.machine, holders)
	options := pool.Options{
		Counters: gates.Counters, Taints: gates.Taints, VFsPerPF: d.VFsPerPF, PairsAsVFs: d.PairsAsVFs,
		Bound: bound, InUse: inUse,
	}
	v := &view{
		State: claims.State{Machine: machine, Pool: pool.Build(machine, options), Unread: unread},
		Gates: gates, Bound: bound, looks: d.looks, holders: holders, inUse: inUse, unread: unread,
		others: map[string]pool.Device{},
	}
	options.Taints = true
	for _, counters := range []bool{!gates.Counters, gates.Counters} {
		options.Counters = counters
		maps.Copy(v.others, pool.Build(machine, options).Devices)
	}
	d.tell(v.notes())
	d.newest.set(v)
}

// stateFor is the state for claims, with the devices that were allocated to them when the cluster could do
// something else than now.
func (v *view) stateFor(of []*resourceapi.ResourceClaim) claims.State {
	state, cloned := v.State, false
	for _, claim := range of {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			_, published := state.Pool.Devices[result.Device]
			other, known := v.others[result.Device]
			if result.Driver != pool.Driver || published || !known {
				continue
			}
			if !cloned {
				state.Pool.Devices, cloned = maps.Clone(state.Pool.Devices), true
			}
			state.Pool.Devices[result.Device] = other
		}
	}
	return state
}

// withHolders is the machine with those who hold devices without a claim.
func withHolders(machine inventory.Machine, holders map[string]string) inventory.Machine {
	if len(holders) == 0 {
		return machine
	}
	machine.GPUs, machine.VFs = slices.Clone(machine.GPUs), slices.Clone(machine.VFs)
	for i := range machine.GPUs {
		machine.GPUs[i].Held = holders[machine.GPUs[i].ID]
	}
	for i := range machine.VFs {
		machine.VFs[i].Held = holders[machine.VFs[i].ID]
	}
	return machine
}

// wake has what there is put together anew.
func (d *Driver) wake() { poke(d.build) }

// tell logs what people are told, once each.
func (d *Driver) tell(notes []string) {
	for _, note := range notes {
		if !slices.Contains(d.told, note) {
			d.Log.Warn("published", "note", note)
		}
	}
	d.told = notes
}
