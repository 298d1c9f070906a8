package admission

import (
	"cmp"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// MaxDecisions bounds the log of decisions. 256 are at least 64 admissions of two containers with two resources each; one takes
// a few KiB.
const MaxDecisions = 256

// decision is one question with the Allocate that followed, or an Allocate without a question. Nothing in it changes but what
// is not known at first: the container, and the Allocate.
type decision struct {
	at        time.Time
	took      time.Duration
	container *kubelet.Container // nil until it is known
	question  question
	asked     bool
	known     knowledge
	tree      *topology.Tree
	request   placement.Request
	choice    placement.Choice
	chosen    []string
	planned   map[string][]string
	allocated []string
	given     time.Time // when the kubelet took them; zero where it has not
	refusal   string
}

// decisions are the last ones, the newest at the end.
type decisions struct {
	entries []*decision
	newest  map[granted]*decision // by the first device that each gave
}

// granted is a device that the kubelet gave somebody.
type granted struct{ resource, id string }

// granted is the first device that a decision gave, false for none.
func (e *decision) granted() (granted, bool) {
	if len(e.allocated) == 0 || e.refusal != "" {
		return granted{}, false
	}
	return granted{e.question.resource, e.allocated[0]}, true
}

func (d *decisions) add(e *decision) {
	if len(d.entries) == MaxDecisions {
		if first, ok := d.entries[0].granted(); ok && d.newest[first] == d.entries[0] {
			delete(d.newest, first)
		}
		d.entries = slices.Delete(d.entries, 0, 1)
	}
	d.entries = append(d.entries, e)
}

// handover is an Allocate that was answered.
type handover struct {
	at        time.Time
	container *kubelet.Container // nil while it is not known
	resource  string
	ids       []string
	refusal   string // "" for none
}

// take notes a decision that was committed.
func (d *decisions) take(made *deciding) {
	if made.view != nil {
		d.resolve(*made.view)
	}
	if made.asked != nil {
		d.add(made.asked)
	}
	if g := made.given; g != nil {
		d.give(g.at, g.container, g.resource, g.ids, g.refusal)
	}
}

// give notes an Allocate with the question that it answers, if there was one.
func (d *decisions) give(now time.Time, container *kubelet.Container, resource string, ids []string, refusal string) {
	var e *decision
	if n := len(d.entries); n > 0 {
		e = d.entries[n-1]
	}
	if e == nil || !e.asked || !e.given.IsZero() || e.question.resource != resource || e.question.size != len(ids) {
		e = &decision{at: now, question: question{resource: resource, size: len(ids)}}
		d.add(e)
	}
	if e.container == nil {
		e.container = container
	}
	e.given, e.allocated, e.refusal = now, slices.Clone(ids), refusal
	if first, ok := e.granted(); ok {
		if d.newest == nil {
			d.newest = map[granted]*decision{}
		}
		d.newest[first] = e
	}
}

// resolve takes the containers of decisions from a look at the kubelet; of several that share a device it is the first by name. A
// device that was given twice since is the last one's.
func (d *decisions) resolve(view kubelet.View) {
	var resolved []*decision
	for container, devices := range view.Containers {
		for resource, ids := range devices {
			for _, id := range ids {
				e := d.newest[granted{resource, id}]
				switch {
				case e == nil:
				case e.container == nil:
					resolved = append(resolved, e)
					e.container = &container
				case slices.Contains(resolved, e) && container.String() < e.container.String():
					e.container = &container
				}
			}
		}
	}
}

// of are copies of the decisions for the containers that a filter accepts, the oldest first.
func (d *decisions) of(accept func(kubelet.Container) bool) []decision {
	var found []decision
	for _, e := range d.entries {
		if e.container != nil && accept(*e.container) {
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

// options are the switches with a free device that could be chosen or planned, by name.
func (e *decision) options() []option {
	found := map[string]*option{}
	at := func(d placement.Device) *option {
		name := switchOf(e.tree, d.Address)
		if found[name] == nil {
			found[name] = &option{name: name}
		}
		return found[name]
	}
	for _, d := range freeOf(e.request.GPUs) {
		o := at(d)
		o.gpus++
		if slices.Contains(e.choice.GPUs, d) {
			o.takenGPUs++
		}
	}
	for _, d := range freeOf(e.request.VFs) {
		o := at(d)
		o.vfs++
		if slices.Contains(e.choice.VFs, d) {
			o.takenVFs++
		}
	}
	sorted := make([]option, 0, len(found))
	for name, o := range found {
		if choice, err := placement.Choose(e.tree, e.within(name)); err == nil {
			o.result = choice.Reason
		}
		sorted = append(sorted, *o)
	}
	slices.SortFunc(sorted, func(a, b option) int { return cmp.Compare(a.name, b.name) })
	return sorted
}

// within is the request as it would have been, had this switch alone had free devices.
func (e *decision) within(name string) placement.Request {
	r := e.request
	r.GPUs, r.Spare.GPUs = e.narrowed(r.GPUs, r.Spare.GPUs, name)
	r.VFs, r.Spare.VFs = e.narrowed(r.VFs, r.Spare.VFs, name)
	return r
}

func (e *decision) narrowed(halves []placement.Half, spare []placement.Device, name string) ([]placement.Half, []placement.Device) {
	narrow := slices.Clone(halves)
	spare = slices.Clone(spare)
	for i, half := range halves {
		narrow[i].Free = nil
		for _, d := range half.Free {
			if switchOf(e.tree, d.Address) == name {
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

// switchOf names the switch that a device hangs on: the topmost bridge that it shares with another card, so that devices of one
// name are PIX or PXB to each other; the host bridge where it shares none; "unknown" for a device that the tree does not hold.
func switchOf(tree *topology.Tree, address topology.Address) string {
	d, ok := tree.Device(address)
	if !ok {
		return "unknown"
	}
	if shared := tree.SharedBridges(address); len(shared) > 0 {
		return shared[0].String()
	}
	return d.RootComplex()
}
