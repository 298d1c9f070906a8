// SPDX-License-Identifier: Apache-2.0

package history

import "slices"

// input is an operation of the model with all facts that the history has before.
type input struct {
	event     *Event
	spec      *Spec
	container *Container // nil if unknown
	nodes     []int      // the container's NUMA nodes; none: all
	exempt    []Promise  // by the storm, or by an event of the same admission
	relisting bool       // the kubelet has started, and has not listed all pods
	surprised bool       // a pod has ended since the kubelet chose the container's NUMA nodes
	unasked   []string   // requested resources that the kubelet allocates without a question
	refusal   bool       // Tandem has refused devices to the pod
}

// reader follows the events of a node.
type reader struct {
	specs    map[string]*Spec     // by UID
	aligned  map[[2]string]*Event // by UID and container
	refused  map[string]bool      // by UID
	asked    map[[3]string]bool   // by UID, container and resource, over the whole history
	doubt    map[string][]Promise // exemptions of the admissions so far, by UID
	ends     []int64              // times at which pods end, in order
	exempt   []Promise
	relisted int64 // time at which the kubelet has listed all pods
}

func newReader(events []Event) *reader {
	r := &reader{
		specs: map[string]*Spec{}, aligned: map[[2]string]*Event{}, refused: map[string]bool{},
		asked: map[[3]string]bool{}, doubt: map[string][]Promise{},
	}
	for i := range events {
		switch e := &events[i]; e.Kind {
		case Release:
			r.ends = append(r.ends, e.Call)
		case Question:
			r.asked[[3]string{e.UID, e.Container, e.Resource}] = true
		}
	}
	return r
}

// endsIn reports whether a pod ends in an interval.
func (r *reader) endsIn(from, to int64) bool {
	i, _ := slices.BinarySearch(r.ends, from)
	return i < len(r.ends) && r.ends[i] <= to
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
	case Allocation:
		r.refused[e.UID] = r.refused[e.UID] || e.Refusal != ""
	}
	r.doubt[e.UID] = append(r.doubt[e.UID], e.Exempt...)
	in := input{
		event: e, spec: r.specs[e.UID], exempt: slices.Concat(r.exempt, r.doubt[e.UID]),
		relisting: e.Call <= r.relisted, refusal: r.refused[e.UID],
	}
	if a := r.aligned[of]; a != nil {
		in.nodes, in.surprised = a.Nodes, r.endsIn(a.Return, e.end())
	}
	if in.container = in.spec.container(e.Container); in.container != nil {
		for name := range in.container.Requests {
			if !r.asked[[3]string{e.UID, e.Container, name}] {
				in.unasked = append(in.unasked, name)
			}
		}
	}
	return in, slices.Contains([]Kind{Question, Allocation, Verdict, Confirmation, View, Release}, e.Kind)
}
