// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/fleet"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/plane"
)

// trial is a load on a fleet.
type trial struct {
	choice choice
	fleet  fleet.Options
	load   fleet.Load
}

// outcome is what became of a load.
type outcome struct {
	mu       sync.Mutex
	made     map[string]time.Time // when, by job
	wishes   map[string]fleet.Wish
	first    map[string]time.Duration // from the creation of a job's pod to its first node
	refusals []fleet.Pod
	hit      map[string]bool // jobs with refusals
	admitted map[string]fleet.Pod

	cpu    time.Duration
	judged judgement
}

func newOutcome() *outcome {
	return &outcome{
		made: map[string]time.Time{}, wishes: map[string]fleet.Wish{}, first: map[string]time.Duration{},
		hit: map[string]bool{}, admitted: map[string]fleet.Pod{},
	}
}

func (o *outcome) make(name string, w fleet.Wish) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.made[name], o.wishes[name] = time.Now(), w
}

func (o *outcome) told(p fleet.Pod) {
	o.mu.Lock()
	defer o.mu.Unlock()
	made, known := o.made[p.Job]
	if !known {
		return // of another load
	}
	if p.Try == 0 {
		o.first[p.Job] = p.Bound.Sub(made)
	}
	if p.Verdict.Admitted {
		o.admitted[p.Job] = p
		return
	}
	o.hit[p.Job] = true
	o.refusals = append(o.refusals, p)
}

// run runs a trial on a control plane of its own. The outcome is that of the pods that come when as many end;
// all refusals are judged.
func (r trial) run(t *testing.T, o plane.Options) *outcome {
	t.Helper()
	p, client := start(t, o)
	defer p.End()
	warm, result := newOutcome(), newOutcome()
	nodes, err := fleet.New(t.Context(), client, r.fleet, func(pod fleet.Pod) {
		warm.told(pod)
		result.told(pod)
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- nodes.Run(ctx) }()
	r.choice.start(p, logged)
	first, rest := r.load, r.load
	first.Schedulers, rest.Schedulers = r.choice.names(), r.choice.names()
	first.Pods = r.load.Warm()
	if err := first.Run(ctx, nodes, warm.make); err != nil {
		t.Fatal(err)
	}
	spent := r.choice.cpu(p)
	rest.First, rest.Seed = first.Pods, r.load.Seed+1
	if err := rest.Run(ctx, nodes, result.make); err != nil {
		t.Fatal(err)
	}
	result.cpu = (r.choice.cpu(p) - spent) / time.Duration(rest.Pods)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if r.choice.has(byTandem) {
		decided, err := decisions(p.Log(byTandem.program))
		if err != nil || len(decided) == 0 {
			t.Fatalf("%d decisions are in the log: %v", len(decided), err)
		}
		result.judged = judge(slices.Concat(warm.refusals, result.refusals), nodes, decided)
	}
	return result
}

// cpu is how long the schedulers have kept processors busy.
func (c choice) cpu(p *plane.Plane) time.Duration {
	var sum time.Duration
	for _, s := range c.schedulers {
		sum += p.CPU(s.program)
	}
	return sum
}

// patience is how long no pod has to be bound for the others to be given up.
const patience = 2 * time.Minute

// wait waits until so many jobs have had a node, and tells how many had.
func (o *outcome) wait(count int) int {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	bound, since := o.bound(), time.Now()
	for bound < count && time.Since(since) < patience {
		<-ticker.C
		if now := o.bound(); now > bound {
			bound, since = now, time.Now()
		}
	}
	return bound
}

func (o *outcome) bound() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.first)
}

// forget leaves a job out of what is told of waiting.
func (o *outcome) forget(job string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.first, job)
}

// pairs is which part of the pairs that were asked for is on one switch each.
func (o *outcome) pairs() float64 {
	got, wanted := 0, 0
	for _, p := range o.admitted {
		got += p.Verdict.Pairs
		wanted += p.Verdict.Wanted
	}
	return float64(got) / float64(max(1, wanted))
}

// took is how long pods waited for a node, of those that got one; part 0.5 is the median.
func (o *outcome) took(part float64) time.Duration {
	list := make([]time.Duration, 0, len(o.first))
	for _, d := range o.first {
		list = append(list, d)
	}
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[int(part*float64(len(list)-1))]
}
