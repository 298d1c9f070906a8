// SPDX-License-Identifier: Apache-2.0

// Package history keeps the last decisions, for people who ask why a container has what it has.
package history

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Most bounds the log of decisions. 256 are at least 64 admissions of two containers with two resources each,
// and more than the containers that a node runs (the kubelet's maxPods is 110).
const Most = 256

// MostBytes bounds what they take, about. On most nodes 256 take a tenth of it. Where they would take more
// it is forgotten of the oldest what each switch alone would have given.
const MostBytes = 16 << 20

// Decision is one question with the Allocate that followed, or an Allocate without a question. Nothing in it
// changes but what is not known at first: the container, and the Allocate.
type Decision struct {
	At          time.Time
	Took        time.Duration
	Container   *kubelet.Container // nil until it is known
	Resource    string
	Size        int      // devices wanted
	Available   int      // devices that could be chosen
	MustInclude []string // devices that had to be
	Asked       bool     // there was a question
	Known       string   // of who asks, and by which source
	Tree        *topology.Tree
	Request     placement.Request
	Choice      placement.Choice
	Chosen      []string
	Planned     map[string][]string
	Allocated   []string
	Given       time.Time // when the kubelet took them; zero where it has not
	Refusal     string

	folded   *folded              // the request, where its lists are long
	fixed    func() *api.Decision // what never changes of it, as it is sent
	cost     int                  // in bytes, its tree aside
	treeCost int                  // of that, which others may share
	short    bool                 // tree, request and choice are forgotten
}

// Log are the last decisions, the oldest first, and those of all containers that live. Its user guards it.
type Log struct {
	// Lives reports whether a container has the device; nil for none does.
	Lives func(resource, id string) bool

	entries []*Decision
	newest  map[granted]*Decision // by the first device that each gave
}

// lives reports whether the container has what the decision gave it.
func (d *Log) lives(e *Decision) bool {
	first, ok := e.granted()
	return ok && d.newest[first] == e && d.Lives != nil && d.Lives(first.resource, first.id)
}

// granted is a device that the kubelet gave somebody.
type granted struct{ resource, id string }

// granted is the first device that a decision gave, false for none.
func (e *Decision) granted() (granted, bool) {
	if len(e.Allocated) == 0 || e.Refusal != "" {
		return granted{}, false
	}
	return granted{e.Resource, e.Allocated[0]}, true
}

// Add notes a decision. Where the log is full the oldest goes whose container does not live, or the oldest.
func (d *Log) Add(e *Decision) {
	if len(d.entries) == Most {
		d.forgetOne(Most)
	}
	if long(e.Request) {
		e.folded, e.Request = fold(e.Request, e.Choice), placement.Request{}
	}
	asked := *e
	e.fixed = sync.OnceValue(func() *api.Decision { return asked.encode(true) })
	e.cost, e.treeCost = e.bytes(), d.treeCost(e)
	d.entries = append(d.entries, e)
	d.fit()
}

// forgetOne forgets, of the oldest so many, the oldest whose container does not live, or the oldest.
func (d *Log) forgetOne(of int) {
	d.forget(max(0, slices.IndexFunc(d.entries[:of], func(e *Decision) bool { return !d.lives(e) })))
}

// fit makes the log take no more than it may, as long as it has more than the newest.
func (d *Log) fit() {
	for i := 0; len(d.entries) > 1 && d.bytes() > MostBytes; i++ {
		if last := len(d.entries) - 1; i < last {
			d.entries[i].shorten()
		} else {
			d.forgetOne(last)
		}
	}
}

// bytes is about what the log takes. A tree counts once: decisions that share one follow each other.
func (d *Log) bytes() int {
	n := 0
	var tree *topology.Tree
	for _, e := range d.entries {
		n += e.cost
		if e.Tree != nil && e.Tree != tree {
			tree = e.Tree
			n += e.treeCost
		}
	}
	return n
}

// treeCost is about what the tree of a decision takes.
func (d *Log) treeCost(e *Decision) int {
	if n := len(d.entries); n > 0 && d.entries[n-1].Tree == e.Tree {
		return d.entries[n-1].treeCost
	}
	n := 0
	if e.Tree != nil {
		for range e.Tree.Devices() {
			n += treeDeviceBytes
		}
	}
	return n
}

// shorten forgets what it takes to find out what each switch alone would have given.
func (e *Decision) shorten() {
	if e.short {
		return
	}
	m := e.encode(false)
	e.fixed = func() *api.Decision { return m }
	e.Tree, e.Request, e.Choice, e.folded = nil, placement.Request{}, placement.Choice{}, nil
	e.short, e.cost = true, encodedBytes(m)
}

func (d *Log) forget(i int) {
	if first, ok := d.entries[i].granted(); ok && d.newest[first] == d.entries[i] {
		delete(d.newest, first)
	}
	d.entries = slices.Delete(d.entries, i, i+1)
}

// Give notes an Allocate with the question that it answers, if there was one.
func (d *Log) Give(
	now time.Time, container *kubelet.Container, resource string, ids []string, refusal string,
) {
	var e *Decision
	if n := len(d.entries); n > 0 {
		e = d.entries[n-1]
	}
	if e == nil || !e.Asked || !e.Given.IsZero() || e.Resource != resource || e.Size != len(ids) {
		e = &Decision{At: now, Resource: resource, Size: len(ids)}
		d.Add(e)
	}
	if e.Container == nil {
		e.Container = container
	}
	e.Given, e.Allocated, e.Refusal = now, slices.Clone(ids), refusal
	d.index(e)
}

// index notes which decision gave a device last.
func (d *Log) index(e *Decision) {
	if first, ok := e.granted(); ok {
		if d.newest == nil {
			d.newest = map[granted]*Decision{}
		}
		d.newest[first] = e
	}
}

// Resolve takes the containers of decisions from a look at the kubelet; of several that share a device it is
// the first by name. A device that was given twice since is the last one's.
func (d *Log) Resolve(view kubelet.View) {
	var resolved []*Decision
	for container, devices := range view.Containers {
		for resource, ids := range devices {
			for _, id := range ids {
				e := d.newest[granted{resource, id}]
				switch {
				case e == nil:
				case e.Container == nil:
					resolved = append(resolved, e)
					e.Container = &container
				case slices.Contains(resolved, e) && container.String() < e.Container.String():
					e.Container = &container
				}
			}
		}
	}
}

// All are copies of all decisions, the oldest first.
func (d *Log) All() []Decision {
	all := make([]Decision, 0, len(d.entries))
	for _, e := range d.entries {
		all = append(all, *e)
	}
	return all
}

// Of are copies of the decisions for the containers that a filter accepts, the oldest first.
func (d *Log) Of(accept func(kubelet.Container) bool) []Decision {
	var found []Decision
	for _, e := range d.entries {
		if e.Container != nil && accept(*e.Container) {
			found = append(found, *e)
		}
	}
	return found
}

// option is a switch as a decision found it.
type option struct {
	name                string
	gpus, vfs           int // free
	takenGPUs, takenVFs int
	result              string
}

// forgotten is what a switch alone would have given, where that is not known any more.
const forgotten = "not kept: the decisions since then take the room"

// settled is the result of every switch where nothing was left to choose.
const settled = "nothing to choose: all devices were named or held before"

// open reports whether there was something left to choose for a request.
func open(r placement.Request) bool {
	lacks := func(h placement.Half) bool { return len(h.Held) < h.Count }
	return slices.ContainsFunc(r.GPUs, lacks) || slices.ContainsFunc(r.VFs, lacks)
}

// options are the switches with a free device that could be chosen or planned, by name, with what each alone
// would have given or without.
func (e *Decision) options(results bool) []option {
	request := e.Request
	if e.folded != nil {
		request = e.folded.unfold()
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
			o.result = forgotten
		} else if !open(request) { // "1 pair: 1 PIX" would be what the container has, not what the switch gives
			o.result = settled
		} else if choice, err := placement.Choose(e.Tree, e.within(request, name)); err == nil {
			o.result = choice.Reason
		}
		sorted = append(sorted, *o)
	}
	slices.SortFunc(sorted, func(a, b option) int { return cmp.Compare(a.name, b.name) })
	return sorted
}

// within is the request as it would have been, had this switch alone had free devices.
func (e *Decision) within(r placement.Request, name string) placement.Request {
	r.GPUs, r.Spare.GPUs = e.narrowed(r.GPUs, r.Spare.GPUs, name)
	r.VFs, r.Spare.VFs = e.narrowed(r.VFs, r.Spare.VFs, name)
	return r
}

func (e *Decision) narrowed(
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
