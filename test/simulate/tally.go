// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"math"
	"slices"
)

// tally counts the outcomes of the containers of one trial, and the node's state over time.
type tally struct {
	node     *Node
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
func (t *tally) arrival(s *State, what int, c Container, outcome Outcome) {
	r := &t.requests[what]
	if outcome == doesNotFit {
		return
	}
	r.fit++
	if outcome == Refused {
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
func (t *tally) locality(s *State, c Container) float64 {
	free := slices.Clone(c.Devices[GPU])
	for i := range t.node.Devices[GPU] {
		if !s.Taken(GPU, i) {
			free = append(free, i)
		}
	}
	best := t.best.of(free, c.Request.GPUs)
	if best == 0 {
		return 1
	}
	return float64(t.node.Locality.Of(c.Devices[GPU])) / float64(best)
}

// pass adds the node's state for a duration.
func (t *tally) pass(s *State, time float64) {
	t.time += time
	t.busy += time * (1 - float64(s.Free(GPU))/float64(t.node.Count(GPU)))
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

// sample is the result of one trial: the figures in order, then those of the requests.
type sample []float64

const (
	figPIX = iota
	figFull
	figOwnPF
	figCrossNUMA
	figRefused
	figLocality
	figStranded
	figLoad
	figures
)

const perRequest = 3

func (t *tally) sample(mix Mix) sample {
	s := make(sample, figures+perRequest*len(mix))
	var all, paired requestTally
	pairs := 0
	for i, r := range t.requests {
		request := mix[i].Request
		all.add(r)
		mine := s[figures+perRequest*i:]
		mine[0], mine[1], mine[2] = math.NaN(), math.NaN(), percent(r.refused, r.fit)
		if request.Both() {
			paired.add(r)
			pairs += r.admitted * request.Pairs()
			mine[0], mine[1] = percent(r.pix, r.admitted*request.Pairs()), percent(r.full, r.admitted)
		}
	}
	s[figPIX] = percent(paired.pix, pairs)
	s[figFull] = percent(paired.full, paired.admitted)
	s[figOwnPF] = percent(paired.own, pairs)
	s[figCrossNUMA] = percent(t.crossing, pairs)
	s[figRefused] = percent(all.refused, all.fit)
	s[figLocality] = 100 * t.near / float64(t.several)
	s[figStranded] = t.stranded / t.time
	s[figLoad] = 100 * t.busy / t.time
	return s
}

// percent returns a share in percent, NaN if whole is 0.
func percent(part, whole int) float64 { return 100 * float64(part) / float64(whole) }

// wayReport summarizes samples, one per seed.
func wayReport(w Way, mix Mix, samples []sample) wayResult {
	at := func(i int) *Estimate {
		values := make([]float64, len(samples))
		for k, s := range samples {
			values[k] = s[i]
		}
		return Mean(values)
	}
	r := wayResult{Name: w.Name, Title: w.Title, Figures: Figures{
		PIX: at(figPIX), Full: at(figFull), OwnPF: at(figOwnPF), CrossNUMA: at(figCrossNUMA),
		Refused: at(figRefused), Locality: at(figLocality), Stranded: at(figStranded), Load: at(figLoad),
	}}
	for i, share := range mix {
		from := figures + perRequest*i
		r.Requests = append(r.Requests, requestResult{
			Request: share.Request, PIX: at(from), Full: at(from + 1), Refused: at(from + 2),
		})
	}
	return r
}
