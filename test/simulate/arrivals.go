// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
)

// arrival is the arrival of a container.
type arrival struct {
	gap   float64 // since the arrival before, in mean holding times if one came per holding time
	holds float64 // length of stay, in mean holding times
	what  int     // index into the mix
	first Kind    // the kind of the kubelet's first request
}

// stream is the sequence of arrivals of one seed, the same for all ways of choosing.
type stream struct {
	arrivals []arrival
	seed     [2]uint64
}

// newStream draws Poisson arrivals and exponential holding times.
func newStream(c *Config, number int) stream {
	s := stream{arrivals: make([]arrival, c.Warmup+c.Arrivals), seed: [2]uint64{c.Seed, uint64(number)}}
	rng := rand.New(rand.NewPCG(c.Seed, uint64(number)))
	for i := range s.arrivals {
		a := &s.arrivals[i]
		a.gap, a.holds = rng.ExpFloat64(), rng.ExpFloat64()
		a.what = c.Mix.At(rng.Float64())
		a.first = VF
		if rng.Float64() < c.GPUFirst {
			a.first = GPU
		}
	}
	return s
}

// departures are the containers on a node, the next to leave first.
type departures []departure

type departure struct {
	at        float64
	container Container
}

func (l *departures) add(d departure) {
	i, _ := slices.BinarySearchFunc(*l, d, func(a, b departure) int { return cmp.Compare(a.at, b.at) })
	*l = slices.Insert(*l, i, d)
}

func (l *departures) next() departure {
	d := (*l)[0]
	*l = slices.Delete(*l, 0, 1)
	return d
}

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
			low, high = high, 2*high
			if high > highestRate {
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
