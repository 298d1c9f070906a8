// SPDX-License-Identifier: Apache-2.0

package history

import (
	"cmp"
	"math"
	"slices"

	"github.com/anishathalye/porcupine"
)

// period is a part of a history between two changes of the weather.
type period struct {
	begin      int64
	init       state
	operations []porcupine.Operation
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
