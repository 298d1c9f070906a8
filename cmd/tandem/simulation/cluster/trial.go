// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"math"
	"math/rand/v2"

	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/world"
)

// The Job controller's waits before it creates a new pod, in mean holding times (an hour).
const (
	firstRetry = 10.0 / 3600
	lastRetry  = 360.0 / 3600
)

// pod is a job's current pod, with the history of the job.
type pod struct {
	number  int // of its arrival
	what    int // index into the mix
	came    float64
	holds   float64
	refused int
	counts  bool
}

// arrival is the arrival of a pod.
type arrival struct {
	at, holds float64
	what      int
}

// newStream draws the arrivals of one seed: bursts of equal pods with different holding times.
func newStream(c *Config, rate float64, number int) []arrival {
	rng := rand.New(rand.NewPCG(c.Seed, uint64(number)))
	list := make([]arrival, 0, c.Warmup+c.Arrivals)
	now, what := 0.0, 0
	for i := range cap(list) {
		if i%c.Burst == 0 {
			now += rng.ExpFloat64() * float64(c.Burst) / rate
			what = c.Mix.At(rng.Float64())
		}
		list = append(list, arrival{now, rng.ExpFloat64(), what})
	}
	return list
}

// node is a node of the cluster, with the scheduler's view for each request of the mix.
type node struct {
	state *world.State
	views []*view
}

func (n *node) changed() {
	for _, v := range n.views {
		v.renew()
	}
}

// trial is one stream of arrivals under one scheduler.
type trial struct {
	config    *Config
	scheduler *Scheduler
	prefer    world.Prefer
	nodes     []*node
	events    events
	waiting   []*pod
	rng       *rand.Rand
	tally     tally
	now       float64
	used      int // GPUs
}

func newTrial(c *Config, s *Scheduler, seed int) *trial {
	t := &trial{
		config: c, scheduler: s, prefer: c.Choose(c.Node),
		rng: rand.New(rand.NewPCG(c.Seed+1, uint64(seed))), tally: tally{node: c.Node},
	}
	for range c.Nodes {
		n := &node{state: world.NewState(c.Node, c.Rules)}
		for _, share := range c.Mix {
			n.views = append(n.views, &view{state: n.state, prefer: t.prefer, request: share.Request})
		}
		t.nodes = append(t.nodes, n)
	}
	return t
}

// play plays a stream to its last arrival.
func (t *trial) play(stream []arrival) tally {
	for i, a := range stream {
		t.advance(a.at)
		p := &pod{number: i, what: a.what, came: a.at, holds: a.holds, counts: i >= t.config.Warmup}
		t.tally.counting = p.counts
		if p.counts {
			t.tally.jobs++
		}
		t.try(p)
	}
	for _, p := range t.waiting {
		if p.counts {
			t.tally.waiting++
		}
	}
	return t.tally
}

// advance processes the events up to a time: pods end, and Jobs replace refused pods.
func (t *trial) advance(to float64) {
	for {
		e, ok := t.events.next(to)
		if !ok {
			break
		}
		t.pass(e.at)
		if e.ends == nil {
			t.try(e.pod)
			continue
		}
		e.ends.state.Release(e.container)
		e.ends.changed()
		t.used -= e.container.Request.GPUs
		t.roomOn(e.ends)
	}
	t.pass(to)
}

func (t *trial) pass(to float64) {
	t.tally.pass(to-t.now, float64(t.used)/float64(len(t.nodes)*t.config.Node.Count(world.GPU)))
	t.now = to
}

// try sends a pod to the best node, or lets the pod wait if no node passes.
func (t *trial) try(p *pod) {
	if best := t.best(p); best != nil {
		t.send(p, best)
	} else {
		t.waiting = append(t.waiting, p)
	}
}

// best returns the best node that passes, a random one if several are equal, or nil.
func (t *trial) best(p *pod) *node {
	var best *node
	equals := 0
	for _, n := range t.nodes {
		if !t.passes(p, n) {
			continue
		}
		by := 1
		if best != nil {
			by = t.scheduler.better(n.views[p.what], best.views[p.what])
		}
		switch {
		case by > 0:
			best, equals = n, 1
		case by == 0:
			if equals++; t.rng.IntN(equals) == 0 {
				best = n
			}
		}
	}
	return best
}

func (t *trial) passes(p *pod, n *node) bool {
	return n.state.Fits(t.config.Mix[p.what].Request) && t.scheduler.passes(n.views[p.what])
}

// send admits a pod to a node.
func (t *trial) send(p *pod, n *node) {
	first := world.VF
	if t.rng.Float64() < t.config.GPUFirst {
		first = world.GPU
	}
	c, outcome := n.state.Admit(t.config.Mix[p.what].Request, first, t.prefer, t.rng)
	if outcome != world.Admitted {
		t.refused(p)
		return
	}
	n.changed()
	t.used += c.Request.GPUs
	t.tally.admitted(p, c, t.now)
	t.events.add(event{at: t.now + p.holds, pod: p, ends: n, container: c})
}

// refused schedules the Job's next pod, unless the Job gives up.
func (t *trial) refused(p *pod) {
	p.refused++
	t.tally.refused(p)
	if p.refused <= Limit {
		wait := math.Min(firstRetry*math.Exp2(float64(p.refused-1)), lastRetry)
		t.events.add(event{at: t.now + wait, pod: p})
	}
}

// roomOn tries the waiting pods, in the order of their arrival, on a node that has changed.
func (t *trial) roomOn(n *node) {
	waiting := t.waiting
	t.waiting = nil
	for _, p := range waiting {
		if t.passes(p, n) {
			t.send(p, n)
		} else {
			t.waiting = append(t.waiting, p)
		}
	}
}
