// SPDX-License-Identifier: Apache-2.0

package history

import (
	"cmp"
	"math"
	"slices"

	"github.com/anishathalye/porcupine"
)

// input is an operation of the model with all facts that the history has before.
type input struct {
	event     *Event
	spec      *Spec
	container *Container // nil if unknown
	nodes     []int      // the container's NUMA nodes; none: all
	exempt    []Promise  // by the storm
	relisting bool       // the kubelet has started, and has not listed all pods
	surprised bool       // a pod has ended since the kubelet chose the container's NUMA nodes
	unasked   []string   // resources that the container has without a question
	refusal   bool       // Tandem has refused devices to the pod
}

// period is a part of a history between two changes of the weather.
type period struct {
	begin      int64
	init       state
	operations []porcupine.Operation
}

// reader follows the events of a node.
type reader struct {
	specs    map[string]*Spec       // by UID
	aligned  map[[2]string]*Event   // by UID and container
	unasked  map[[2]string][]string // likewise
	refused  map[string]bool        // by UID
	asked    map[[2]string]string   // resource of the newest question
	ends     []int64                // times at which pods end
	exempt   []Promise
	relisted int64 // time at which the kubelet has listed all pods
}

func newReader(events []Event) *reader {
	r := &reader{
		specs: map[string]*Spec{}, aligned: map[[2]string]*Event{}, unasked: map[[2]string][]string{},
		refused: map[string]bool{}, asked: map[[2]string]string{},
	}
	for _, e := range events {
		if e.Kind == Release {
			r.ends = append(r.ends, e.Call)
		}
	}
	return r
}

// endsIn reports whether a pod ends in an interval.
func (r *reader) endsIn(from, to int64) bool {
	return slices.ContainsFunc(r.ends, func(t int64) bool { return from <= t && t <= to })
}

// periods returns the periods of a node's events.
func periods(events []Event) []period {
	r, all := newReader(events), []period{{begin: 0}}
	for i := range events {
		e := &events[i]
		if e.Kind == Storm || e.Kind == Calm {
			r.exempt = e.Exempt
			all = append(all, period{begin: e.Call})
			continue
		}
		if in, judged := r.read(e); judged {
			now := &all[len(all)-1]
			now.operations = append(now.operations, operation(in))
		}
	}
	return connected(all)
}

// read returns the operation of an event, and false for an event that only tells of others.
func (r *reader) read(e *Event) (input, bool) {
	of := [2]string{e.UID, e.Container}
	switch e.Kind {
	case Arrival:
		r.specs[e.UID] = e.Spec
	case Alignment:
		r.aligned[of] = e
	case Started:
		if e.Text == Kubelet {
			r.relisted = e.end()
		}
	case Question:
		r.asked[of] = e.Resource
	case Allocation:
		if r.asked[of] != e.Resource {
			r.unasked[of] = append(r.unasked[of], e.Resource)
		}
		r.refused[e.UID] = r.refused[e.UID] || e.Refusal != ""
	}
	in := input{
		event: e, spec: r.specs[e.UID], exempt: r.exempt, relisting: e.Call <= r.relisted,
		unasked: slices.Clone(r.unasked[of]), refusal: r.refused[e.UID],
	}
	if a := r.aligned[of]; a != nil {
		in.nodes, in.surprised = a.Nodes, r.endsIn(a.Return, e.end())
	}
	in.container = in.spec.container(e.Container)
	return in, slices.Contains([]Kind{Question, Allocation, Verdict, Confirmation, View, Release}, e.Kind)
}

// operation returns an operation of porcupine. An event that is not over can have its effect at any later
// time.
func operation(in input) porcupine.Operation {
	return porcupine.Operation{Input: in, Call: in.event.Call, Return: in.event.end()}
}

// end returns the time of the end, later than any time for an event that is not over.
func (e *Event) end() int64 {
	if e.Return == 0 {
		return math.MaxInt64
	}
	return e.Return
}

// connected fills in the state at the begin of each period, and moves operations that are not over to the
// next period. Operations of an ended period take effect in the order of their end.
func connected(all []period) []period {
	now := state{}
	for i := range all {
		p := &all[i]
		p.init = now
		if i+1 == len(all) {
			break
		}
		next := &all[i+1]
		over := func(o porcupine.Operation) bool { return o.Return < next.begin }
		var ended, stay []porcupine.Operation
		for _, o := range p.operations {
			switch release := o.Input.(input).event.Kind == Release; {
			case over(o):
				ended = append(ended, o)
			case release:
				stay = append(stay, o)
				fallthrough
			default:
				next.operations = append(next.operations, later(o, next.begin))
			}
		}
		p.operations = append(stay, ended...)
		slices.SortStableFunc(ended, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
		for _, o := range ended {
			now = apply(now, o.Input.(input))
		}
	}
	return all
}

// later returns an operation that begins with a period.
func later(o porcupine.Operation, begin int64) porcupine.Operation {
	o.Call = begin
	return o
}
