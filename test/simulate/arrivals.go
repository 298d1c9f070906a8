// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/tandem-k8s/tandem/test/simulate/world"
)

// arrival is the arrival of a container.
type arrival struct {
	gap   float64    // since the arrival before, in mean holding times if one came per holding time
	holds float64    // length of stay, in mean holding times
	what  int        // index into the mix
	first world.Kind // the kind of the kubelet's first request
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
		a.first = world.VF
		if rng.Float64() < c.GPUFirst {
			a.first = world.GPU
		}
	}
	return s
}

// departures are the containers on a node, the next to leave first.
type departures []departure

type departure struct {
	at        float64
	container world.Container
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
