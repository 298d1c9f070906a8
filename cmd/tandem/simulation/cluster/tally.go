// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/world"
)

// tally counts the outcomes of the pods of one trial.
type tally struct {
	node     *world.Node
	counting bool

	jobs, refusals, hit, lost, waiting int // waiting: when the last pod came
	started                            int
	wanted, pix, paired, full          int // pairs, those on one switch; containers with pairs, those full
	waited                             float64
	time, busy                         float64 // integrals: 1, share of GPUs in use
}

func (t *tally) pass(time, busy float64) {
	if t.counting {
		t.time += time
		t.busy += time * busy
	}
}

func (t *tally) refused(p *pod) {
	if !p.counts {
		return
	}
	t.refusals++
	if p.refused == 1 {
		t.hit++
	}
	if p.refused > Limit {
		t.lost++
	}
}

func (t *tally) admitted(p *pod, c world.Container, now float64) {
	if !p.counts {
		return
	}
	t.started++
	t.waited += now - p.came
	if !c.Request.Both() {
		return
	}
	pix, _, _ := t.node.Pairs(c)
	t.paired++
	t.wanted += c.Request.Pairs()
	t.pix += pix
	if pix == c.Request.Pairs() {
		t.full++
	}
}

// figures returns the figures in the order of [Figures], NaN for those without a value.
func (t *tally) figures() [figures]float64 {
	return [figures]float64{
		float64(t.refusals) / float64(t.jobs),
		percent(t.hit, t.jobs),
		percent(t.lost, t.jobs),
		percent(t.pix, t.wanted),
		percent(t.full, t.paired),
		100 * t.busy / t.time,
		60 * t.waited / float64(t.started),
		percent(t.waiting, t.jobs),
	}
}

func percent(part, whole int) float64 { return 100 * float64(part) / float64(whole) }
