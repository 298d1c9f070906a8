// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"fmt"
	"sync"
)

// The search for the rate of arrivals uses some of the seeds, and bisects the range calibrationSteps times.
const (
	calibrationSeeds = 64
	calibrationSteps = 12
	highestRate      = 1 << 14
)

// calibrate returns, for every load, the rate of arrivals at which the stock plugins allocate that share of
// the GPUs. All ways of choosing get the same arrivals.
func (c *Config) calibrate(ctx context.Context) ([]float64, error) {
	trial := *c
	trial.Ways = []Way{{Name: "stock", make: Stock}}
	players := trial.players()
	rates := make([]float64, len(c.Loads))
	for i, load := range c.Loads {
		low, high := 0.0, 1.0
		for {
			got, err := trial.measure(ctx, players, high)
			if err != nil {
				return nil, err
			}
			if got >= load {
				break
			}
			if low, high = high, 2*high; high > highestRate {
				return nil, fmt.Errorf("calibrate: the mix never allocates %g %% of the GPUs, at most %.1f %%", load, got)
			}
		}
		for range calibrationSteps {
			middle := (low + high) / 2
			got, err := trial.measure(ctx, players, middle)
			if err != nil {
				return nil, err
			}
			if got < load {
				low = middle
			} else {
				high = middle
			}
		}
		rates[i] = (low + high) / 2
	}
	return rates, nil
}

// measure returns the share of GPUs allocated at a rate.
func (c *Config) measure(ctx context.Context, players *sync.Pool, rate float64) (float64, error) {
	loads := make([]float64, min(c.Seeds, calibrationSeeds))
	err := each(ctx, len(loads), func(i int) {
		p := players.Get().(*player)
		loads[i] = p.play(newStream(c, i), rate, 0).sample(c.Mix)[figLoad]
		players.Put(p)
	})
	sum := 0.0
	for _, l := range loads {
		sum += l
	}
	return sum / float64(len(loads)), err
}
