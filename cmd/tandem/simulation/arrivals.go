package simulation

import (
	"math/rand/v2"

	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/world"
)

// arrival is a container that comes to the node.
type arrival struct {
	gap   float64    // since the arrival before, in mean holding times if one came per holding time
	holds float64    // how long it stays, in mean holding times
	what  int        // index into the mix
	first world.Kind // the half that the kubelet asks first
}

// stream is the arrivals of one seed. All ways of choosing see the same stream.
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

// departures is a heap of the containers on a node, the next to leave on top.
type departures []departure

type departure struct {
	at        float64
	number    int // of the arrival
	container world.Container
}

func (h *departures) push(d departure) {
	*h = append(*h, d)
	list := *h
	for i := len(list) - 1; i > 0; {
		parent := (i - 1) / 2
		if list[parent].at <= list[i].at {
			return
		}
		list[parent], list[i] = list[i], list[parent]
		i = parent
	}
}

func (h *departures) pop() departure {
	list := *h
	top, last := list[0], len(list)-1
	list[0] = list[last]
	list = list[:last]
	for i := 0; ; {
		least := i
		for _, child := range [...]int{2*i + 1, 2*i + 2} {
			if child < last && list[child].at < list[least].at {
				least = child
			}
		}
		if least == i {
			break
		}
		list[i], list[least] = list[least], list[i]
		i = least
	}
	*h = list
	return top
}
