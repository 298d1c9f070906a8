// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/report"
)

// Run plays the same arrivals under every scheduler, for every load and seed, on all processors. The result
// depends on the configuration alone.
func Run(ctx context.Context, c Config) (*Report, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if c.Node == nil {
		return nil, errors.New("simulate: no node")
	}
	r := newReport(&c)
	for i, load := range c.Loads {
		rate, err := c.rate(load)
		if err != nil {
			return nil, err
		}
		samples, err := c.playAll(ctx, rate, i*c.Seeds)
		if err != nil {
			return nil, err
		}
		r.Loads = append(r.Loads, c.summary(load, samples))
	}
	return r, nil
}

// samples are figures by scheduler and seed.
type samples [][][figures]float64

// playAll plays all seeds of one load; before is the number of finished trials.
func (c *Config) playAll(ctx context.Context, rate float64, before int) (samples, error) {
	found := make(samples, len(c.Schedulers))
	for i := range found {
		found[i] = make([][figures]float64, c.Seeds)
	}
	done := before
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for seed := range c.Seeds {
		group.Go(func() error {
			stream := newStream(c, rate, seed)
			for i := range c.Schedulers {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				played := newTrial(c, &c.Schedulers[i], seed).play(stream)
				found[i][seed] = played.figures()
			}
			mu.Lock()
			defer mu.Unlock()
			if done++; c.Progress != nil {
				c.Progress(done, len(c.Loads)*c.Seeds)
			}
			return nil
		})
	}
	return found, group.Wait()
}

// summary summarizes one load.
func (c *Config) summary(load float64, found samples) Load {
	l := Load{Load: load}
	for i, s := range c.Schedulers {
		at := func(figure int) *report.Estimate {
			values := make([]float64, c.Seeds)
			for k := range values {
				values[k] = found[i][k][figure]
			}
			return report.Mean(values)
		}
		l.Schedulers = append(l.Schedulers, Result{Name: s.Name, Title: s.Title, Figures: Figures{
			Refusals: at(0), Hit: at(1), Lost: at(2), PIX: at(3), Full: at(4), Busy: at(5), Wait: at(6),
			Waiting: at(7),
		}})
	}
	return l
}
