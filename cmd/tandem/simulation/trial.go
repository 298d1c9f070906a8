// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"math/rand/v2"
	"sync"

	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/locality"
	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/world"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// trial is one stream of arrivals on one node under one way of choosing.
type trial struct {
	state  *world.State
	prefer world.Prefer
	rng    *rand.Rand
	leave  departures
	tally  tally
	bound  *bound // nil if not needed
	now    float64
	counts bool // after the warm-up
}

// player plays trials one after the other, and keeps the caches of the ways of choosing.
type player struct {
	config *Config
	prefer []world.Prefer
	ahead  map[*outlook]world.Prefer
	best   *locality.Best
}

// pace is the rate of arrivals per mean holding time, with the outlook for that rate or nil.
type pace struct {
	rate    float64
	outlook *outlook
}

func newPlayer(c *Config) *player {
	p := &player{config: c, ahead: map[*outlook]world.Prefer{}, best: locality.NewBest(c.Node.Locality)}
	for _, w := range c.Ways {
		p.prefer = append(p.prefer, w.Prefer(c.Node))
	}
	return p
}

// players returns a pool of players for concurrent trials.
func (c *Config) players() *sync.Pool { return &sync.Pool{New: func() any { return newPlayer(c) }} }

// choosing returns the way's choice at a pace.
func (p *player) choosing(way int, at pace) world.Prefer {
	if !p.config.Ways[way].ahead || at.outlook == nil {
		return p.prefer[way]
	}
	prefer, ok := p.ahead[at.outlook]
	if !ok {
		prefer = newAhead(p.config.Node, at.outlook)
		p.ahead[at.outlook] = prefer
	}
	return prefer
}

// play plays a stream and returns its tally. It reports admissions to bound, if not nil.
func (p *player) play(s stream, at pace, way int, bound *bound) *tally {
	c := p.config
	rules := world.Rules{Policy: c.Policy, ExcludeTopology: c.ExcludeTopology}
	if c.Ways[way].whole {
		rules.Policy = hints.None
	}
	t := &trial{
		state:  world.NewState(c.Node, rules),
		prefer: p.choosing(way, at),
		bound:  bound,
		rng:    rand.New(rand.NewPCG(s.seed[0]+1, s.seed[1])),
		tally:  tally{node: c.Node, best: p.best, requests: make([]requestTally, len(c.Mix))},
	}
	for i, a := range s.arrivals {
		t.advance(t.now + a.gap/at.rate)
		t.counts = i >= c.Warmup
		t.arrive(i, a, c.Mix[a.what].Request)
	}
	return &t.tally
}

// arrive lets the i-th container come.
func (t *trial) arrive(i int, a arrival, r world.Request) {
	var before world.State
	if t.bound != nil {
		before = t.state.Numbers()
	}
	container, outcome := t.state.Admit(r, a.first, t.prefer, t.rng)
	if t.counts {
		t.tally.arrival(t.state, a.what, container, outcome)
	}
	if outcome != world.Admitted {
		return
	}
	t.leave.add(departure{t.now + a.holds, i, container})
	if t.bound != nil {
		mask, _ := before.Affinity(r)
		t.bound.admit(i, container, &before, mask, t.counts)
	}
}

// advance lets time pass: containers leave.
func (t *trial) advance(to float64) {
	for len(t.leave) > 0 && t.leave[0].at <= to {
		d := t.leave.next()
		t.pass(d.at)
		t.state.Release(d.container)
		if t.bound != nil {
			t.bound.release(d.number)
		}
	}
	t.pass(to)
}

func (t *trial) pass(to float64) {
	if t.counts {
		t.tally.pass(t.state, to-t.now)
	}
	t.now = to
}
