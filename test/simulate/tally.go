// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"slices"

	"github.com/tandem-k8s/tandem/test/simulate/world"
)

// tally counts the outcomes of the containers of one trial, and the node's state over time.
type tally struct {
	node     *world.Node
	best     *best
	requests []requestTally // by index of the mix

	near     float64 // sum of GPU to GPU locality
	several  int     // containers with several GPUs
	crossing int     // pairs across NUMA nodes

	time, busy, stranded float64 // integrals: 1, share of GPUs allocated, stranded pairs
}

// requestTally counts the containers of one request.
type requestTally struct {
	fit, refused, admitted int
	// same-switch pairs; those with a PF of their own; containers with all pairs on one switch
	pix, own, full int
}

// arrival counts a container after its admission.
func (t *tally) arrival(s *world.State, what int, c world.Container, outcome world.Outcome) {
	r := &t.requests[what]
	if outcome == world.DoesNotFit {
		return
	}
	r.fit++
	if outcome == world.Refused {
		r.refused++
		return
	}
	r.admitted++
	if c.Request.Both() {
		pix, own, sameNode := t.node.Pairs(c)
		r.pix += pix
		r.own += own
		if pix == c.Request.Pairs() {
			r.full++
		}
		t.crossing += c.Request.Pairs() - sameNode
	}
	if c.Request.GPUs > 1 {
		t.several++
		t.near += t.locality(s, c)
	}
}

// locality returns the score of a container's GPUs relative to the best set of the GPUs free before.
func (t *tally) locality(s *world.State, c world.Container) float64 {
	free := slices.Clone(c.Devices[world.GPU])
	for i := range t.node.Devices[world.GPU] {
		if !s.Taken(world.GPU, i) {
			free = append(free, i)
		}
	}
	best := t.best.of(free, c.Request.GPUs)
	if best == 0 {
		return 1
	}
	return float64(t.node.Locality.Of(c.Devices[world.GPU])) / float64(best)
}

// pass adds the node's state for a duration.
func (t *tally) pass(s *world.State, time float64) {
	t.time += time
	t.busy += time * (1 - float64(s.Free(world.GPU))/float64(t.node.Count(world.GPU)))
	t.stranded += time * float64(s.Stranded())
}

func (r *requestTally) add(o requestTally) {
	r.fit += o.fit
	r.refused += o.refused
	r.admitted += o.admitted
	r.pix += o.pix
	r.own += o.own
	r.full += o.full
}
