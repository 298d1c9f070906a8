// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"fmt"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/plugins/dra/claims"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
)

// view is the state of the node at one moment, and the published data. It is immutable.
type view struct {
	observation

	State claims.State
	// others contains unpublished devices, by name: devices for other features of the cluster, devices that are
	// omitted because the cluster lacks taints, and VFs of pairs as devices of their own.
	others map[string]pool.Device
	failed map[string]bool // IDs of VFs that have become unhealthy since they were published
}

// observation is the input of a view, except for the machine.
type observation struct {
	Gates   features
	Bound   map[string]string // VFs of claims, by device of the pool
	inUse   map[string]string // devices of the pool that claims have, by ID of the GPU or VF
	looks   int               // number of looks at the machine
	holders map[string]string // holders without a claim, by device ID
	unread  error             // reason for unknown holders, which prevents publish and prepare; nil if known
}

// equal reports whether two observations give the same view.
func (o observation) equal(p observation) bool {
	return o.looks == p.looks && o.Gates == p.Gates && maps.Equal(o.holders, p.holders) &&
		maps.Equal(o.Bound, p.Bound) && maps.Equal(o.inUse, p.inUse) &&
		fmt.Sprint(o.unread) == fmt.Sprint(p.unread)
}

// newView builds a view of a machine, whose devices have no holders yet. The options contain the
// configuration of the pool.
func newView(machine pool.Machine, o observation, options pool.Options) *view {
	machine = withHolders(machine, o.holders)
	options.Counters, options.Taints = o.Gates.Counters, o.Gates.Taints
	options.Bound, options.InUse = o.Bound, o.inUse
	v := &view{
		observation: o, others: pool.SingleVFs(machine), failed: options.FailedLater,
		State: claims.State{Machine: machine, Pool: pool.Build(machine, options), Unread: o.unread},
	}
	options.Taints = true
	for _, counters := range []bool{!o.Gates.Counters, o.Gates.Counters} {
		options.Counters = counters
		maps.Copy(v.others, pool.Build(machine, options).Devices)
	}
	return v
}

// failedLater returns the VFs of a machine that have become unhealthy since they were published, by ID.
func (v *view) failedLater(machine pool.Machine) map[string]bool {
	if !v.isKnown() {
		return nil
	}
	wasSound, later := map[string]bool{}, map[string]bool{}
	for _, vf := range v.State.Machine.VFs {
		wasSound[vf.ID] = vf.Failure() == "" || v.failed[vf.ID]
	}
	for _, vf := range machine.VFs {
		if vf.Failure() != "" && wasSound[vf.ID] {
			later[vf.ID] = true
		}
	}
	return later
}

// isKnown reports whether a view can be published.
func (v *view) isKnown() bool { return v.Gates.Known && v.unread == nil }

// notes returns remarks about the published data, for people.
func (v *view) notes() []string {
	notes := slices.Concat(v.Gates.notes(), v.State.Pool.Notes)
	if v.unread != nil {
		notes = append(notes, fmt.Sprintf("nothing is published: %v", v.unread))
	}
	return notes
}

// stateFor returns the state for claims. It includes devices that the claims were allocated while the cluster
// had other features, and VFs that have become part of pairs since: for example, a VF that is reserved for a
// GPU stays published by itself while a claim holds it, and the next claim can be allocated it before the
// publication that follows the end of the first one.
func (v *view) stateFor(list []*resourceapi.ResourceClaim) claims.State {
	state, cloned := v.State, false
	for _, claim := range list {
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
