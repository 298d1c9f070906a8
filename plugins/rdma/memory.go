// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/topology"
)

// memory is the daemon's state from before its start, in one file of the run directory, which lasts until the
// node boots. After a boot only the kubelet's checkpoint lists the devices of containers.
type memory struct {
	Boot string `json:"boot"` // system.Disk.BootID; not in files of earlier versions
	// Listed contains all devices reported to the kubelet, by resource name. A gone device has to stay
	// listed: the kubelet crashes if a device of a container is no longer listed.
	Listed map[string]map[string]listed `json:"listed"`
	// Hidden contains the properties that container namespaces may hide, by device ID.
	Hidden map[string]pools.Hidden `json:"hidden"`
	// Hints contains the last decision about the hints of each pool that leaves it to the node; not in files of
	// earlier versions.
	Hints map[string]given `json:"hints,omitempty"`
}

// listed is a device as last seen, without its ID.
type listed struct {
	Address topology.Address  `json:"address"`
	PF      topology.Address  `json:"pf,omitzero"`
	NUMA    topology.NUMANode `json:"numa,omitzero"`
	Aux     string            `json:"aux,omitempty"`
	HCA     string            `json:"hca,omitempty"`
}

func newMemory(boot string) *memory {
	return &memory{Boot: boot, Listed: map[string]map[string]listed{}, Hidden: map[string]pools.Hidden{}}
}

// readMemory reads the memory of a boot. That of another boot is empty.
func readMemory(file, boot string) (*memory, error) {
	m := newMemory(boot)
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err == nil {
		err = json.Unmarshal(content, m)
	}
	if err == nil && (m.Listed == nil || m.Hidden == nil) {
		err = errors.New("it is not complete")
	}
	if err == nil && m.Boot != boot {
		return newMemory(boot), nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what was known of devices from %s: %w", file, err)
	}
	return m, nil
}

// keep removes the listed devices that no container holds and that were not there last. A device of a
// container that is not in the memory is reconstructed from its ID.
func (m *memory) keep(held map[string][]string, wasThere func(resource, id string) bool) {
	for resource, devices := range m.Listed {
		maps.DeleteFunc(devices, func(id string, _ listed) bool {
			return !slices.Contains(held[resource], id) && !wasThere(resource, id)
		})
	}
	for resource, ids := range held {
		for _, id := range ids {
			d, ok := pools.FromID(id)
			if _, known := m.Listed[resource][id]; known || !ok {
				continue
			}
			if m.Listed[resource] == nil {
				m.Listed[resource] = map[string]listed{}
			}
			m.Listed[resource][id] = listed{Address: d.Address, HCA: d.HCA}
		}
	}
}

// remember updates the memory with the current devices of a pool.
func (m *memory) remember(pool pools.Pool) {
	if m.Listed[pool.Name] == nil {
		m.Listed[pool.Name] = map[string]listed{}
	}
	for _, d := range pool.Devices {
		m.Listed[pool.Name][d.ID] = listed{Address: d.Address, PF: d.PF, NUMA: d.NUMA, Aux: d.Aux, HCA: d.HCA}
		if d.Visible != nil {
			m.Hidden[d.ID] = *d.Visible
		}
	}
}

// tidy removes the hidden properties of devices that are not listed.
func (m *memory) tidy() {
	maps.DeleteFunc(m.Hidden, func(id string, _ pools.Hidden) bool {
		for _, devices := range m.Listed {
			if _, isListed := devices[id]; isListed {
				return false
			}
		}
		return true
	})
}

// devices returns the devices that were listed for a resource, by ID, marked as no longer found.
func (m *memory) devices(resource string) map[string]pools.Device {
	devices := make(map[string]pools.Device, len(m.Listed[resource]))
	for id, l := range m.Listed[resource] {
		devices[id] = pools.Device{ID: id, Address: l.Address, PF: l.PF, NUMA: l.NUMA, Aux: l.Aux, HCA: l.HCA}
	}
	return devices
}

const (
	// decidePause is the interval between two decisions about hints.
	decidePause = 5 * time.Second
	// decisionLasts is the time between two changes of a pool's hints: the kubelet gets a new list by each.
	decisionLasts = time.Minute
	// admissionLasts is the time in which the kubelet admits a container: from the use of a list of devices to
	// the record of the container's devices.
	admissionLasts = 30 * time.Second
)

// hinting decides about the NUMA hints of pools over time. Hints may be withdrawn at any time. They are given
// only while no container has a device of the pool: a kubelet that starts admits its containers again, with
// the hints of then, and would end a container whose devices the hints do not permit.
type hinting struct {
	began   time.Time
	decided map[string]pools.Decision
	waiting bool      // the hints of a pool wait for the end of containers
	sent    time.Time // last time at which lists were sent for the kubelet's checkpoint alone

	// The mutex of VFs guards the time of the last Allocate of each pool.
	allocated map[string]time.Time
}

// given is the last decision about the hints of a pool.
type given struct {
	Hints bool      `json:"hints"`
	Since time.Time `json:"since,omitzero"` // zero before the first change
	// Settled is set by the process that has given hints, when no container is in admission any more that began
	// before, and none has got a device of the pool.
	Settled bool `json:"settled,omitempty"`
}

// decide decides about the hints of pools as the kubelet knows them, with devices that are gone, and reports
// whether a decision has changed. The file has a decision before the kubelet has it: a restart must not take
// hints for given that were withdrawn.
func (v *VFs) decide(found []pools.Pool) bool {
	if v.known.Decide == nil {
		return false
	}
	listed := slices.Clone(found)
	for i := range listed {
		listed[i].Devices = v.keep(listed[i])
	}
	wanted, gpusKnown := v.known.Decide(listed)
	next, decided, waiting := map[string]given{}, map[string]pools.Decision{}, false
	for _, pool := range found {
		if pool.Resource.ExcludeTopology != pools.Auto {
			continue
		}
		was := v.memory.Hints[pool.Name]
		want, ok := wanted[pool.Name]
		if !ok { // without a device
			next[pool.Name] = was
			continue
		}
		if !gpusKnown {
			want = pools.Decision{Hints: was.Hints, Why: "the GPUs are not known yet"}
		}
		u := v.readUse(pool.Name, was, want)
		next[pool.Name], decided[pool.Name] = was.next(want, u)
		waiting = waiting || u.held && !u.early
	}
	v.hints.waiting = waiting
	before := v.memory.Hints
	saved := v.saveHints(next)
	for name, d := range decided {
		switch was := before[name].Hints; {
		case d.Hints == was:
		case !saved:
			decided[name] = pools.Decision{Hints: was, Why: "another decision could not be saved"}
		case v.known.Changed != nil:
			v.known.Changed(name, d.String())
		}
	}
	changed := !maps.Equal(decided, v.hints.decided)
	v.hints.decided = decided
	return changed
}

// use is what prevents a change of a pool's hints.
type use struct {
	now   time.Time // no later than what was read: an Allocate meanwhile is one after the change
	early bool      // the last change was a short time ago
	raced bool      // a container can have been admitted with the list before the last change
	late  bool      // no container is in admission any more that began before
	held  bool      // containers that have devices of the pool prevent hints
	busy  string    // a container has a device of the pool, or may have one; "" if none has
}

// next returns the decision after a wish.
func (g given) next(want pools.Decision, u use) (given, pools.Decision) {
	keep := func(why string) (given, pools.Decision) { return g, pools.Decision{Hints: g.Hints, Why: why} }
	g.Settled = g.Settled || g.Hints && u.late && !u.raced
	switch {
	case g.Hints && u.raced:
		return given{Since: u.now},
			pools.Decision{Why: "a container may have been admitted while the hints were given"}
	case want.Hints == g.Hints:
		return g, want
	case u.early:
		return keep("the last change is less than a minute ago")
	case want.Hints && u.busy != "":
		return keep(u.busy)
	default:
		return given{Hints: want.Hints, Since: u.now}, want
	}
}

// readUse reads what prevents a change.
func (v *VFs) readUse(pool string, last given, want pools.Decision) (u use) {
	u.now = time.Now()
	v.mu.Lock()
	allocated, known := v.hints.allocated[pool]
	v.mu.Unlock()
	if !known { // an earlier process may have answered
		allocated = v.hints.began
	}
	age, after := u.now.Sub(last.Since), allocated.Sub(last.Since)
	u.early, u.late = age >= 0 && age < decisionLasts, age >= admissionLasts
	u.raced = !last.Settled && after >= 0 && (after < admissionLasts || !known)
	if last.Hints || !want.Hints {
		return u
	}
	var held map[string][]string
	var err error
	if v.known.Held != nil {
		held, err = v.known.Held()
	}
	switch {
	case err != nil:
		u.busy = "the devices of containers are unknown"
	case len(held[pool]) > 0:
		u.held, u.busy = true, "containers have devices of the pool: hints come when none has"
	case u.now.Sub(allocated) < admissionLasts:
		u.busy = "a container may be in admission"
	}
	return u
}

// saveHints saves the decisions, and reports whether the file has them.
func (v *VFs) saveHints(next map[string]given) bool {
	before := v.memory.Hints
	if maps.Equal(next, before) {
		return true
	}
	v.setHints(next)
	if !v.save() {
		v.setHints(before)
		return false
	}
	return true
}

func (v *VFs) setHints(to map[string]given) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.memory.Hints = to
}

// admitting notes an Allocate of a pool. If hints have been given a short time ago, the kubelet may have
// chosen the NUMA nodes of the container without them: the first Allocate since counts.
func (v *VFs) admitting(pool string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if last := v.memory.Hints[pool]; last.Hints && !last.Settled {
		v.Look()
		if !v.hints.allocated[pool].Before(last.Since) {
			return
		}
	}
	v.hints.allocated[pool] = time.Now()
}

// decideAgain decides about the pools of the last scan. The kubelet does not write its checkpoint when a pod
// ends, but for each list: while hints wait for the end of containers, each minute has a list.
func (v *VFs) decideAgain() {
	if v.decide(v.found) {
		v.take(v.found, v.warnings)
		v.save()
	}
	if v.hints.waiting && time.Since(v.hints.sent) >= decisionLasts {
		v.hints.sent = time.Now()
		v.mu.Lock()
		v.changed.Raise()
		v.mu.Unlock()
	}
}
