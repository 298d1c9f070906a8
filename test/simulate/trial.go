// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"math/rand/v2"
	"sync"

	"github.com/tandem-k8s/tandem/test/simulate/world"
)

// trial is one stream of arrivals on one node under one way of choosing.
type trial struct {
	state  *world.State
	prefer world.Prefer
	rng    *rand.Rand
	leave  departures
	tally  tally
	now    float64
	counts bool // after the warm-up
}

// player plays trials one after the other, and keeps the caches of the ways of choosing.
type player struct {
	config *Config
	prefer []world.Prefer
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
		state:  world.NewState(c.Node, world.Rules{Policy: c.Policy, ExcludeTopology: c.ExcludeTopology}),
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
func (t *trial) arrive(a arrival, r world.Request) {
	container, outcome := t.state.Admit(r, a.first, t.prefer, t.rng)
	if t.counts {
		t.tally.arrival(t.state, a.what, container, outcome)
	}
	if outcome == world.Admitted {
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
