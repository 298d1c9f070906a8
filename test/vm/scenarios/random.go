// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tandem-k8s/tandem/test/vm/cluster"
)

// randomSizes are the requests of random pods, all equally likely.
var randomSizes = []cluster.Ask{
	{GPUs: 1, VFs: 1}, {GPUs: 2, VFs: 2}, {GPUs: 4, VFs: 4}, {GPUs: 1, VFs: 1}, {GPUs: 2, VFs: 2},
	{GPUs: 1}, {VFs: 1},
}

// wave is the maximum number of pods created at a time, which the kubelet admits one after the other.
const wave = 3

// random admits pods of random sizes, a few at a time, after the removal of others, and counts pairs.
// Refusals because no NUMA node has enough free devices are no fault.
func (t *tester) random(ctx context.Context, s setup, admissions int) error {
	start := time.Now()
	whole := cluster.Ask{GPUs: t.node.Shape.GPUs(), VFs: t.node.VFs()}
	dice := rand.New(rand.NewPCG(1, 2))
	c := &crowd{tester: t, setup: s, dice: dice, whole: whole, live: map[string]cluster.Ask{}}
	for left := admissions; left > 0; left -= len(c.newest) {
		if err := c.next(ctx, min(wave, left)); err != nil {
			return err
		}
	}
	if err := c.settle(ctx, nil); err != nil {
		return err
	}
	if c.count.pairs != c.count.wanted {
		c.count.problem = fmt.Sprintf("%d of %d pairs on one switch", c.count.pairs, c.count.wanted)
	}
	t.add(Row{
		Setup: t.title(s), Scenario: fmt.Sprintf("%d random admissions", admissions), Problem: c.count.problem,
		took: time.Since(start), note: c.count.String(),
	})
	if err := t.agreed(ctx, s, "after random admissions"); err != nil {
		return err
	}
	return t.node.Remove(ctx, slices.Collect(maps.Keys(c.live))...)
}

// crowd has the pods of random. While the newest ones start, others leave to make room for the next. They do
// not leave earlier, because the end of a pod during another's admission, which is slow here, would make that
// pod's GPUs unpredictable.
type crowd struct {
	*tester
	setup  setup
	dice   *rand.Rand
	whole  cluster.Ask            // the machine
	live   map[string]cluster.Ask // pods, but for the newest
	newest []*admission
	late   int // answers before the newest came
	count  tally
}

// admission is a created pod with its outcome.
type admission struct {
	pod      string
	want     cluster.Ask
	made     time.Time
	admitted bool
	outcome  *cluster.Outcome
	late     int // attempts with a late answer
}

func (a *admission) scenario() scenario {
	return scenario{name: a.want.String(), asks: []cluster.Ask{a.want}}
}

// next removes some pods, and then creates a few.
func (c *crowd) next(ctx context.Context, most int) error {
	wants, sum := chooseComing(c.dice, most, c.whole)
	if err := c.settle(ctx, chooseLeaving(c.dice, c.live, c.free(), sum)); err != nil {
		return err
	}
	if !c.free().Has(sum) { // without some of the newest
		if err := c.leave(ctx, chooseLeaving(c.dice, c.live, c.free(), sum)); err != nil {
			return err
		}
	}
	return c.come(ctx, wants)
}

// come creates pods at the same time, and waits until the kubelet has decided on all.
func (c *crowd) come(ctx context.Context, wants []cluster.Ask) (err error) {
	if c.late, err = c.lateAnswers(ctx, c.setup.source); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, want := range wants {
		a := &admission{pod: c.podName(), want: want, made: time.Now()}
		c.newest = append(c.newest, a)
		group.Go(func() (err error) {
			if err := c.node.Submit(ctx, a.scenario().pod(a.pod)); err != nil {
				return err
			}
			a.admitted, err = c.node.Decided(ctx, a.pod)
			return err
		})
	}
	return group.Wait()
}

func (c *crowd) leave(ctx context.Context, leaving []string) error {
	for _, pod := range leaving {
		delete(c.live, pod)
	}
	return c.node.Remove(ctx, leaving...)
}

// settle removes pods while the newest ones report, and counts the latter.
func (c *crowd) settle(ctx context.Context, leaving []string) error {
	group, together := errgroup.WithContext(ctx)
	group.Go(func() error { return c.leave(together, leaving) })
	for _, a := range c.newest {
		group.Go(func() (err error) {
			a.outcome, err = c.node.See(together, a.scenario().pod(a.pod), a.made)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := c.again(ctx); err != nil {
		return err
	}
	var refused []string
	for _, a := range c.newest {
		if c.count.add(a); a.admitted {
			c.live[a.pod] = a.want
		} else {
			refused = append(refused, a.pod)
		}
	}
	if len(c.newest) > 0 {
		c.Say("  %s", c.count)
	}
	c.newest = nil
	return c.node.Remove(ctx, refused...)
}

// again repeats those of the newest pods, one after the other, that are wrong after a late answer.
func (c *crowd) again(ctx context.Context) error {
	late, err := c.lateAnswers(ctx, c.setup.source)
	if err != nil {
		return err
	}
	var bad []*admission
	for _, a := range c.newest {
		if judge(c.setup, a.scenario(), a.outcome) == "" {
			continue
		}
		if a.admitted {
			c.node.Keep(ctx, a.pod, c.Path("run/"+a.pod+".log"))
		}
		if late == c.late {
			continue
		}
		bad = append(bad, a)
		if err := c.node.Remove(ctx, a.pod); err != nil {
			return err
		}
		a.admitted = false
	}
	for _, a := range bad {
		c.Say("  %s: an answer came late: once more", a.pod)
		if a.pod, a.outcome, a.late, err = c.admit(ctx, c.setup, a.scenario()); err != nil {
			return err
		}
		a.late++
		a.admitted = a.outcome.Reason == ""
	}
	return nil
}

// free returns the devices without a pod.
func (c *crowd) free() cluster.Ask {
	free := c.whole
	for _, held := range c.live {
		free = free.Minus(held)
	}
	for _, a := range c.newest {
		if a.admitted {
			free = free.Minus(a.want)
		}
	}
	return free
}

// tally counts the results of random.
type tally struct {
	admitted, refused, pairs, wanted, late int
	problem                                string // "" for none
}

func (c tally) String() string {
	return fmt.Sprintf("%d admitted, %d refused (%s), %d of %d pairs on one switch; "+
		"%d tried again since an answer came late",
		c.admitted, c.refused, topologyAffinity, c.pairs, c.wanted, c.late)
}

func (c *tally) add(a *admission) {
	c.late += a.late
	if a.outcome.Reason != "" {
		c.refused++
		if a.outcome.Reason != topologyAffinity {
			c.problem = a.outcome.Reason + ": " + a.outcome.Message
		}
		return
	}
	c.admitted++
	c.pairs += a.outcome.Containers[0].Pairs()
	c.wanted += min(a.want.GPUs, a.want.VFs)
}

// chooseComing returns the next requests, as many as fit on an empty machine, and their sum.
func chooseComing(dice *rand.Rand, most int, whole cluster.Ask) (wants []cluster.Ask, sum cluster.Ask) {
	for range most {
		want := randomSizes[dice.IntN(len(randomSizes))]
		if !whole.Has(sum.Plus(want)) {
			break
		}
		wants, sum = append(wants, want), sum.Plus(want)
	}
	return wants, sum
}

// chooseLeaving returns the pods to remove: as many as necessary for room, and one in four of the others.
func chooseLeaving(dice *rand.Rand, live map[string]cluster.Ask, free, want cluster.Ask) (leaving []string) {
	for name, held := range live { // in map order: chance too
		if free.Has(want) && dice.IntN(4) > 0 {
			continue
		}
		leaving = append(leaving, name)
		free = free.Plus(held)
	}
	return leaving
}
