// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
)

// Config configures a simulation.
type Config struct {
	Node            *Node
	Policy          model.Policy
	ExcludeTopology bool
	Mix             Mix
	Loads           []float64 // shares of GPUs allocated, percent
	GPUFirst        float64   // probability that the kubelet asks for GPUs first
	Seed            uint64
	Seeds           int
	Warmup          int // arrivals before counting starts
	Arrivals        int // measured arrivals
	Ways            []Way

	// Progress, if not nil, receives the number of finished trials. Calls come from several goroutines, but
	// never concurrently.
	Progress func(done, all int)
}

// Check returns an error for an invalid configuration; it does not check the node.
func (c *Config) Check() error {
	switch {
	case len(c.Ways) == 0 || len(c.Mix) == 0 || len(c.Loads) == 0:
		return errors.New("simulate: want at least one load, one request and one way of choosing")
	case !(c.GPUFirst >= 0 && c.GPUFirst <= 1): // NaN is neither
		return fmt.Errorf("simulate: probability %g is not between 0 and 1", c.GPUFirst)
	}
	for _, load := range c.Loads {
		if !(load > 0 && load < 100) {
			return fmt.Errorf("simulate: load %g is not between 0 and 100 percent", load)
		}
	}
	return checkNumbers(c.Seeds, c.Arrivals, c.Warmup)
}

// Run plays the same arrivals under every way of choosing, for every load and seed, on all processors. The
// result depends on the configuration alone.
func Run(ctx context.Context, c Config) (*Report, error) {
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
		done++
		if c.Progress != nil {
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

func (c *Config) report(rates []float64, samples [][][]sample) *Report {
	r := &Report{
		Node: c.Node.Name, GPUs: c.Node.Count(GPU), VFs: c.Node.Count(VF), PFs: c.Node.PFs,
		Policy: c.Policy, ExcludeTopology: c.ExcludeTopology, Mix: c.Mix, GPUFirst: c.GPUFirst,
		Seed: c.Seed, Seeds: c.Seeds, Warmup: c.Warmup, Arrivals: c.Arrivals,
	}
	for load, aim := range c.Loads {
		l := Load{Load: aim, Rate: rates[load]}
		for way, w := range c.Ways {
			l.Ways = append(l.Ways, wayReport(w, c.Mix, samples[load][way]))
		}
		r.Loads = append(r.Loads, l)
	}
	return r
}

// each does n pieces of work on all processors.
func each(ctx context.Context, n int, do func(i int)) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range n {
		group.Go(func() error {
			if ctx.Err() == nil {
				do(i)
			}
			return ctx.Err()
		})
	}
	return group.Wait()
}

// trial is one stream of arrivals on one node under one way of choosing.
type trial struct {
	state  *State
	prefer Prefer
	rng    *rand.Rand
	leave  departures
	tally  tally
	now    float64
	counts bool // after the warm-up
}

// player plays trials one after the other, and keeps the caches of the ways of choosing.
type player struct {
	config *Config
	prefer []Prefer
	best   *best
}

func newPlayer(c *Config) *player {
	p := &player{config: c, best: newBest(c.Node.Locality)}
	for _, w := range c.Ways {
		p.prefer = append(p.prefer, w.Prefer(c.Node))
	}
	return p
}

// players returns a pool of players for concurrent trials.
func (c *Config) players() *sync.Pool { return &sync.Pool{New: func() any { return newPlayer(c) }} }

// play plays a stream under a way of choosing, at a rate of arrivals per mean holding time.
func (p *player) play(s stream, rate float64, way int) *tally {
	c := p.config
	t := &trial{
		state:  newState(c.Node, Rules{Policy: c.Policy, ExcludeTopology: c.ExcludeTopology}),
		prefer: p.prefer[way],
		rng:    rand.New(rand.NewPCG(s.seed[0]+1, s.seed[1])),
		tally:  tally{node: c.Node, best: p.best, requests: make([]requestTally, len(c.Mix))},
	}
	for i, a := range s.arrivals {
		t.advance(t.now + a.gap/rate)
		t.counts = i >= c.Warmup
		t.arrive(a, c.Mix[a.what].Request)
	}
	return &t.tally
}

// arrive lets a container come.
func (t *trial) arrive(a arrival, r Request) {
	container, outcome := t.state.Admit(r, a.first, t.prefer, t.rng)
	if t.counts {
		t.tally.arrival(t.state, a.what, container, outcome)
	}
	if outcome == Admitted {
		t.leave.add(departure{t.now + a.holds, container})
	}
}

// advance lets time pass: containers leave.
func (t *trial) advance(to float64) {
	for len(t.leave) > 0 && t.leave[0].at <= to {
		d := t.leave.next()
		t.pass(d.at)
		t.state.Release(d.container)
	}
	t.pass(to)
}

func (t *trial) pass(to float64) {
	if t.counts {
		t.tally.pass(t.state, to-t.now)
	}
	t.now = to
}
