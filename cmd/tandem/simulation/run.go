// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"

	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/report"
	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/world"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// Run plays the same arrivals under every way of choosing, for every load and seed, on all processors. The
// result depends on the configuration alone.
func Run(ctx context.Context, c Config) (*report.Report, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if c.Node == nil {
		return nil, errors.New("simulate: no node")
	}
	rates, err := c.calibrate(ctx)
	if err != nil {
		return nil, err
	}
	paces := c.paces(rates)
	found := newFindings(&c)
	players := c.players()
	done := 0
	var mu sync.Mutex
	err = each(ctx, len(c.Loads)*c.Seeds, func(i int) {
		load, seed := i/c.Seeds, i%c.Seeds
		p := players.Get().(*player)
		p.playAll(newStream(&c, seed), paces[load], found, load, seed)
		players.Put(p)
		mu.Lock()
		defer mu.Unlock()
		if done++; c.Progress != nil {
			c.Progress(done, len(c.Loads)*c.Seeds)
		}
	})
	if err != nil {
		return nil, err
	}
	return found.report(&c, paces), nil
}

// paces computes the outlook at each rate, if a way of choosing uses outlooks, the NUMA nodes are separate
// problems, and these are small.
func (c *Config) paces(rates []float64) []pace {
	paces := make([]pace, len(rates))
	for i, rate := range rates {
		paces[i].rate = rate
		if c.Policy == hints.Restricted && !c.ExcludeTopology &&
			slices.ContainsFunc(c.Ways, func(w Way) bool { return w.ahead }) {
			paces[i].outlook = newOutlook(c.Node, c.Mix, rate)
		}
	}
	return paces
}

// playAll plays a stream under every way of choosing, and computes the bound with the first way under the
// kubelet.
func (p *player) playAll(s stream, at pace, found *findings, load, seed int) {
	c := p.config
	var b *bound
	for way, w := range c.Ways {
		var mine *bound
		if b == nil && !w.whole && !c.ExcludeTopology { // else the numbers on each NUMA node depend on the choice
			b = newBound(c.Node)
			mine = b
		}
		found.samples[load][way][seed] = p.play(s, at, way, mine).sample(c.Mix)
	}
	found.bounds[load][seed] = math.NaN()
	if b != nil {
		found.bounds[load][seed] = b.share()
	}
}

// findings are the samples by load, way and seed.
type findings struct {
	samples [][][]sample
	bounds  [][]float64
}

func newFindings(c *Config) *findings {
	f := &findings{samples: make([][][]sample, len(c.Loads)), bounds: make([][]float64, len(c.Loads))}
	for load := range f.samples {
		f.bounds[load] = make([]float64, c.Seeds)
		f.samples[load] = make([][]sample, len(c.Ways))
		for way := range c.Ways {
			f.samples[load][way] = make([]sample, c.Seeds)
		}
	}
	return f
}

func (f *findings) report(c *Config, paces []pace) *report.Report {
	r := &report.Report{
		Node: c.Node.Name, GPUs: c.Node.Count(world.GPU), VFs: c.Node.Count(world.VF), PFs: c.Node.PFs,
		Policy: c.Policy, ExcludeTopology: c.ExcludeTopology, Mix: c.Mix, GPUFirst: c.GPUFirst,
		Seed: c.Seed, Seeds: c.Seeds, Warmup: c.Warmup, Arrivals: c.Arrivals,
	}
	for load, aim := range c.Loads {
		l := report.Load{Load: aim, Rate: paces[load].rate, Bound: bounded(f.bounds[load])}
		for way, w := range c.Ways {
			if w.ahead && paces[load].outlook == nil {
				continue
			}
			l.Ways = append(l.Ways, wayReport(w, c.Mix, f.samples[load][way]))
		}
		r.Loads = append(r.Loads, l)
	}
	return r
}

// bounded returns the mean of the bounds, or nil unless every seed has a bound.
func bounded(shares []float64) *report.Estimate {
	if slices.ContainsFunc(shares, math.IsNaN) {
		return nil
	}
	return report.Mean(shares)
}
