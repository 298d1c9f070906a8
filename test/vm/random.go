package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// randomSizes are what the pods of random ask for, each as likely as the others.
var randomSizes = []ask{{gpus: 1, vfs: 1}, {gpus: 2, vfs: 2}, {gpus: 4, vfs: 4}, {gpus: 1, vfs: 1}, {gpus: 2, vfs: 2}, {gpus: 1}, {vfs: 1}}

// tally is what random counts.
type tally struct{ admitted, refused, pairs, wanted, late int }

func (c tally) String() string {
	return fmt.Sprintf("%d admitted, %d refused (%s), %d of %d pairs on one switch; %d tried again since an answer came late",
		c.admitted, c.refused, topologyAffinity, c.pairs, c.wanted, c.late)
}

// random admits pods of random sizes while others go, and counts pairs. What the kubelet refuses because no NUMA node has
// enough left is no fault.
func (t *tester) random(ctx context.Context, s setup, admissions int) error {
	start := time.Now()
	dice := rand.New(rand.NewPCG(1, 2))
	live := map[string]ask{}
	free := ask{gpus: t.node.machine.gpus(), vfs: t.node.machine.vfs()}
	var count tally
	var problem string
	for range admissions {
		want := randomSizes[dice.IntN(len(randomSizes))]
		leaving := chooseLeaving(dice, live, free, want)
		gone := sync.OnceValue(t.removing(ctx, leaving))
		if !free.has(want) {
			if err := gone(); err != nil {
				return err
			}
		}
		name, o, late, err := t.admit(ctx, s, scenario{name: want.String(), asks: []ask{want}})
		if err != nil {
			return err
		}
		count.late += late
		if err := gone(); err != nil {
			return err
		}
		for _, one := range leaving {
			free = free.plus(live[one])
			delete(live, one)
		}
		if o.reason != "" {
			count.refused++
			if o.reason != topologyAffinity {
				problem = o.reason + ": " + o.message
			}
			if err := t.node.remove(ctx, name); err != nil {
				return err
			}
			continue
		}
		count.admitted++
		live[name] = want
		free = free.plus(ask{gpus: -want.gpus, vfs: -want.vfs})
		count.pairs += o.containers[0].pairs()
		count.wanted += min(want.gpus, want.vfs)
		t.say("  %s", count)
	}
	if count.pairs != count.wanted {
		problem = fmt.Sprintf("%d of %d pairs on one switch", count.pairs, count.wanted)
	}
	t.add(row{setup: t.title(s), scenario: fmt.Sprintf("%d random admissions", admissions), problem: problem, took: time.Since(start), note: count.String()})
	if err := t.agreed(ctx, s, "after random admissions"); err != nil {
		return err
	}
	return t.node.remove(ctx, slices.Collect(maps.Keys(live))...)
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

// removing begins to remove pods, and returns what waits until they are gone.
func (t *tester) removing(ctx context.Context, names []string) (wait func() error) {
	done := make(chan error, 1)
	go func() { done <- t.node.remove(ctx, names...) }()
	return func() error { return <-done }
}

func (a ask) has(b ask) bool { return a.gpus >= b.gpus && a.vfs >= b.vfs }

func (a ask) plus(b ask) ask { return ask{gpus: a.gpus + b.gpus, vfs: a.vfs + b.vfs} }
