// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"math"

	"github.com/tandem-k8s/tandem/test/simulate/report"
	"github.com/tandem-k8s/tandem/test/simulate/world"
)

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

func (t *tally) sample(mix world.Mix) sample {
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
func wayReport(w Way, mix world.Mix, samples []sample) report.Way {
	at := func(i int) *report.Estimate {
		values := make([]float64, len(samples))
		for k, s := range samples {
			values[k] = s[i]
		}
		return report.Mean(values)
	}
	r := report.Way{Name: w.Name, Title: w.Title, Figures: report.Figures{
		PIX: at(figPIX), Full: at(figFull), OwnPF: at(figOwnPF), CrossNUMA: at(figCrossNUMA),
		Refused: at(figRefused), Locality: at(figLocality), Stranded: at(figStranded), Load: at(figLoad),
	}}
	for i, share := range mix {
		from := figures + perRequest*i
		r.Requests = append(r.Requests, report.Request{
			Request: share.Request, PIX: at(from), Full: at(from + 1), Refused: at(from + 2),
		})
	}
	return r
}
