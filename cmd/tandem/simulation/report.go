package simulation

import (
	"math"

	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// Report is what a simulation found.
type Report struct {
	Node            string       `json:"node"`
	GPUs            int          `json:"gpus"`
	VFs             int          `json:"vfs"`
	PFs             int          `json:"pfs"`
	Policy          hints.Policy `json:"policy"`
	ExcludeTopology bool         `json:"excludeTopology"`
	Mix             Mix          `json:"mix"`
	GPUFirst        float64      `json:"gpuFirst"`
	Seed            uint64       `json:"seed"`
	Seeds           int          `json:"seeds"`
	Warmup          int          `json:"warmup"`
	Arrivals        int          `json:"arrivals"`
	Loads           []LoadReport `json:"loads"`
}

// LoadReport is what came of one load.
type LoadReport struct {
	Load float64     `json:"load"` // share of GPUs allocated that was aimed at, percent
	Rate float64     `json:"rate"` // arrivals per mean holding time
	Ways []WayReport `json:"ways"`

	// Bound is the PIX share that no choice at all can exceed, even one that knows when every container comes and goes: for the same
	// admissions on the same NUMA nodes. Null where it cannot be computed.
	Bound *Estimate `json:"bound"`
}

// WayReport is what came of one way of choosing.
type WayReport struct {
	Name     string          `json:"name"`
	Title    string          `json:"title"`
	Figures  Figures         `json:"figures"`
	Requests []RequestReport `json:"requests"`
}

// RequestReport is what came of one request of the mix. Figures that mean nothing for it are null.
type RequestReport struct {
	Request Request   `json:"request"`
	PIX     *Estimate `json:"pix"`
	Full    *Estimate `json:"full"`
	Refused *Estimate `json:"refused"`
}

// Figures are percentages, but for Stranded; null where there was nothing to count.
type Figures struct {
	PIX       *Estimate `json:"pix"`       // pairs on one switch, of all pairs asked for; no VF counts twice
	Full      *Estimate `json:"full"`      // containers with all pairs on one switch, of those that asked for both
	OwnPF     *Estimate `json:"ownPF"`     // pairs on one switch that share no PF either, of all pairs
	CrossNUMA *Estimate `json:"crossNUMA"` // pairs across NUMA nodes, of all pairs
	Refused   *Estimate `json:"refused"`   // containers refused, of those for which there were enough free devices
	Locality  *Estimate `json:"locality"`  // how near the GPUs are to each other by PCIe, of the best that was free
	Stranded  *Estimate `json:"stranded"`  // pairs of free devices that do not share a switch, mean over time
	Load      *Estimate `json:"load"`      // share of GPUs allocated, mean over time
}

// sample is what one trial found: the figures in their order, then those of the requests.
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
		if request.both() {
			paired.add(r)
			pairs += r.admitted * request.pairs()
			mine[0], mine[1] = percent(r.pix, r.admitted*request.pairs()), percent(r.full, r.admitted)
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

func (r *requestTally) add(o requestTally) {
	r.arrived += o.arrived
	r.fit += o.fit
	r.refused += o.refused
	r.admitted += o.admitted
	r.pix += o.pix
	r.own += o.own
	r.full += o.full
}

// percent is NaN where there is nothing to take a part of.
func percent(part, whole int) float64 { return 100 * float64(part) / float64(whole) }

// wayReport sums samples up, one of every seed.
func wayReport(w Way, mix Mix, samples []sample) WayReport {
	at := func(i int) *Estimate {
		values := make([]float64, len(samples))
		for k, s := range samples {
			values[k] = s[i]
		}
		return estimate(values)
	}
	r := WayReport{Name: w.Name, Title: w.Title, Figures: Figures{
		PIX: at(figPIX), Full: at(figFull), OwnPF: at(figOwnPF), CrossNUMA: at(figCrossNUMA),
		Refused: at(figRefused), Locality: at(figLocality), Stranded: at(figStranded), Load: at(figLoad),
	}}
	for i, share := range mix {
		from := figures + perRequest*i
		r.Requests = append(r.Requests, RequestReport{Request: share.Request, PIX: at(from), Full: at(from + 1), Refused: at(from + 2)})
	}
	return r
}
