package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// randomSizes are what the pods of random ask for, each as likely as the others.
var randomSizes = []ask{{gpus: 1, vfs: 1}, {gpus: 2, vfs: 2}, {gpus: 4, vfs: 4}, {gpus: 1, vfs: 1}, {gpus: 2, vfs: 2}, {gpus: 1}, {vfs: 1}}

// tally is what random counts.
type tally struct {
	admitted, refused, pairs, wanted, late int
	problem                                string // "" for none
}

func (c tally) String() string {
	return fmt.Sprintf("%d admitted, %d refused (%s), %d of %d pairs on one switch; %d tried again since an answer came late",
		c.admitted, c.refused, topologyAffinity, c.pairs, c.wanted, c.late)
}

// wave is how many pods come at a time at the most, which the kubelet admits one after the other.
const wave = 3

// random admits pods of random sizes, a few at a time, after others have gone, and counts pairs. What the kubelet refuses because no NUMA
// node has enough left is no fault. Nobody could foresee where a pod gets GPUs if another ended in the midst of its admission, which
// takes so long here that it would happen.
func (t *tester) random(ctx context.Context, s setup, admissions int) error {
	start := time.Now()
	dice := rand.New(rand.NewPCG(1, 2))
	live := map[string]ask{}
	whole := ask{gpus: t.node.machine.gpus(), vfs: t.node.vfs()}
	free := whole
	var count tally
	for count.admitted+count.refused < admissions {
		wants, sum := chooseComing(dice, min(wave, admissions-count.admitted-count.refused), whole)
		leaving := chooseLeaving(dice, live, free, sum)
		if err := t.node.remove(ctx, leaving...); err != nil {
			return err
		}
		come, err := t.come(ctx, s, wants)
		if err != nil {
			return err
		}
		for _, one := range leaving {
			free = free.plus(live[one])
			delete(live, one)
		}
		for i, a := range come {
			if count.add(wants[i], a); a.outcome.reason != "" {
				if err := t.node.remove(ctx, a.pod); err != nil {
					return err
				}
				continue
			}
			live[a.pod] = wants[i]
			free = free.plus(ask{gpus: -wants[i].gpus, vfs: -wants[i].vfs})
		}
		t.say("  %s", count)
	}
	if count.pairs != count.wanted {
		count.problem = fmt.Sprintf("%d of %d pairs on one switch", count.pairs, count.wanted)
	}
	t.add(row{setup: t.title(s), scenario: fmt.Sprintf("%d random admissions", admissions), problem: count.problem, took: time.Since(start), note: count.String()})
	if err := t.agreed(ctx, s, "after random admissions"); err != nil {
		return err
	}
	return t.node.remove(ctx, slices.Collect(maps.Keys(live))...)
}

// admission is what became of a pod.
type admission struct {
	pod     string
	outcome *outcome
	late    int
}

// come creates pods at the same time.
func (t *tester) come(ctx context.Context, s setup, wants []ask) ([]admission, error) {
	all := make([]admission, len(wants))
	group, ctx := errgroup.WithContext(ctx)
	for i, want := range wants {
		group.Go(func() (err error) {
			a := &all[i]
			a.pod, a.outcome, a.late, err = t.admit(ctx, s, scenario{name: want.String(), asks: []ask{want}})
			return err
		})
	}
	return all, group.Wait()
}

func (c *tally) add(want ask, a admission) {
	c.late += a.late
	if a.outcome.reason != "" {
		c.refused++
		if a.outcome.reason != topologyAffinity {
			c.problem = a.outcome.reason + ": " + a.outcome.message
		}
		return
	}
	c.admitted++
	c.pairs += a.outcome.containers[0].pairs()
	c.wanted += min(want.gpus, want.vfs)
}

// chooseComing is what comes next, as many as fit on an empty machine, and what they take together.
func chooseComing(dice *rand.Rand, most int, whole ask) (wants []ask, sum ask) {
	for range most {
		want := randomSizes[dice.IntN(len(randomSizes))]
		if !whole.has(sum.plus(want)) {
			break
		}
		wants, sum = append(wants, want), sum.plus(want)
	}
	return wants, sum
}

// chooseLeaving names the pods that go: as many as it takes to make room, and one in four of the others.
func chooseLeaving(dice *rand.Rand, live map[string]ask, free, want ask) (leaving []string) {
	for name, held := range live { // in map order: chance too
		if free.has(want) && dice.IntN(4) > 0 {
			continue
		}
		leaving = append(leaving, name)
		free = free.plus(held)
	}
	return leaving
}

func (a ask) has(b ask) bool { return a.gpus >= b.gpus && a.vfs >= b.vfs }

func (a ask) plus(b ask) ask { return ask{gpus: a.gpus + b.gpus, vfs: a.vfs + b.vfs} }
