// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"errors"
	"sync"

	"github.com/tandem-k8s/tandem/test/simulate/report"
	"github.com/tandem-k8s/tandem/test/simulate/world"
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
	samples := newSamples(&c)
	players := c.players()
	done := 0
	var mu sync.Mutex
	err = each(ctx, len(c.Loads)*c.Seeds, func(i int) {
		load, seed := i/c.Seeds, i%c.Seeds
		p := players.Get().(*player)
		s := newStream(&c, seed)
		for way := range c.Ways {
			samples[load][way][seed] = p.play(s, rates[load], way).sample(c.Mix)
		}
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
	return c.report(rates, samples), nil
}

// newSamples returns room for the samples by load, way and seed.
func newSamples(c *Config) [][][]sample {
	samples := make([][][]sample, len(c.Loads))
	for load := range samples {
		samples[load] = make([][]sample, len(c.Ways))
		for way := range c.Ways {
			samples[load][way] = make([]sample, c.Seeds)
		}
	}
	return samples
}

func (c *Config) report(rates []float64, samples [][][]sample) *report.Report {
	r := &report.Report{
		Node: c.Node.Name, GPUs: c.Node.Count(world.GPU), VFs: c.Node.Count(world.VF), PFs: c.Node.PFs,
		Policy: c.Policy, ExcludeTopology: c.ExcludeTopology, Mix: c.Mix, GPUFirst: c.GPUFirst,
		Seed: c.Seed, Seeds: c.Seeds, Warmup: c.Warmup, Arrivals: c.Arrivals,
	}
	for load, aim := range c.Loads {
		l := report.Load{Load: aim, Rate: rates[load]}
		for way, w := range c.Ways {
			l.Ways = append(l.Ways, wayReport(w, c.Mix, samples[load][way]))
		}
		r.Loads = append(r.Loads, l)
	}
	return r
}
