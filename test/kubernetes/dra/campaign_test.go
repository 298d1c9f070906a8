// SPDX-License-Identifier: Apache-2.0

package dra_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/kubernetes/dra/claim"
	"github.com/tandem-k8s/tandem/test/kubernetes/dra/node"
	"github.com/tandem-k8s/tandem/test/kubernetes/dra/oracle"
	"github.com/tandem-k8s/tandem/test/kubernetes/dra/scheduler"
	"github.com/tandem-k8s/tandem/test/machines"
)

// These bound the search for what there is, and for what there is not. The first is a search that takes the
// scheduler some 10 ms; one that takes more is a finding. Before 1.36 it tries all orders of the devices of a
// request, where it now tries all sets: for eight pairs on one NUMA node, where the first one has seven,
// 14,000 steps.
var (
	found   = map[bool]int{true: 5_000, false: 300_000}[scheduler.Minor >= 36]
	missing = 2_000
)

// Claims come and go at random, on every machine in every form. What the allocator finds is never a
// pair on two switches, and never anything that another claim has; and it finds something whenever
// there is something.
func TestRandomClaims(t *testing.T) {
	cases := everyCase()
	for i, c := range cases {
		runs := *sequences / len(cases)
		if i < *sequences%len(cases) {
			runs++
		}
		if runs == 0 {
			continue
		}
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			c.play(t, runs)
		})
	}
}

// situation is a machine in a form.
type situation struct {
	machine  string
	vfsPerPF int
	options  pool.Options
}

func (c situation) String() string {
	form := "counters"
	if !c.options.Counters {
		form = "no-counters"
	}
	return fmt.Sprintf("%s/vfs=%d/%s", c.machine, c.vfsPerPF, form)
}

// everyCase is all machines with some VFs and forms that the scheduler's version knows. The order is
// such that a few sequences have a bit of all.
func everyCase() []situation {
	var list []situation
	for _, vfs := range []int{1, 2, 4, 8} {
		for _, name := range machines.Names() {
			for _, counters := range []bool{true, false} {
				if counters && scheduler.Minor < 36 {
					continue
				}
				list = append(list, situation{name, vfs, pool.Options{Counters: counters, Taints: counters}})
			}
		}
	}
	rand.New(rand.NewPCG(*seed, 0)).Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

func (c situation) play(t *testing.T, runs int) {
	machine, err := node.Read(c.machine, c.vfsPerPF)
	if err != nil {
		t.Fatal(err)
	}
	p := build(machine, c.options)
	judge, err := oracle.New(machine, c.options, p)
	if err != nil {
		t.Fatal(err)
	}
	contents, sum := scheduler.Publish(pool.Driver, p.Slices), tally{}
	for run := range runs {
		r := rand.New(rand.NewPCG(*seed, uint64(run)))
		if scheduler.Minor < 36 { // slices have no order yet
			r.Shuffle(len(contents), func(i, j int) { contents[i], contents[j] = contents[j], contents[i] })
		}
		s := scheduler.New(contents, classes(t), scheduler.Defaults())
		q := &sequence{t: t, rng: r, scheduler: s, oracle: judge, tally: &sum}
		q.play(60)
	}
	t.Log(sum)
}

// tally counts what became of claims.
type tally struct{ found, missing, endless, reserved int }

func (t tally) String() string {
	return fmt.Sprintf("%d claims found; %d not, for there was none, %d of them because of VFs that are "+
		"reserved; %d such searches cut short", t.found, t.missing, t.reserved, t.endless)
}

// sequence is claims that come to a node and leave it again.
type sequence struct {
	t         *testing.T
	rng       *rand.Rand
	scheduler *scheduler.Scheduler
	oracle    *oracle.Oracle
	tally     *tally
	live      []living
	next      int
}

type living struct {
	name   string
	result *resourceapi.AllocationResult
}

// play lets claims come and go, and then the last ones leave.
func (q *sequence) play(events int) {
	keep := q.rng.Float64() // how full the node is on average
	for range events {
		if len(q.live) > 0 && q.rng.Float64() > 0.4+0.4*keep {
			q.leave(q.rng.IntN(len(q.live)))
			continue
		}
		q.come(randomClaim(q.rng))
	}
	for len(q.live) > 0 {
		q.leave(0)
	}
}

func (q *sequence) come(spec claim.Spec) {
	q.next++
	name := fmt.Sprintf("claim-%d", q.next)
	exists := q.oracle.Exists(spec)
	most := found
	if !exists {
		most = missing
		q.tally.missing++
		if q.oracle.Unreserved(spec) {
			q.tally.reserved++
		}
	}
	result, steps, err := q.scheduler.Within(most, spec.Claim(name))
	switch {
	case errors.Is(err, scheduler.ErrSteps) && !exists:
		q.tally.endless++ // it would look on for a while, in vain
		return
	case err != nil:
		q.t.Fatalf("%v (%v): after %d steps: %v", spec, q.live, steps, err)
	case result == nil && exists:
		q.t.Fatalf("%v: not found, and there is one: %d claims before it", spec, len(q.live))
	case result == nil:
		return
	case !exists:
		q.t.Fatalf("%v: found %v, and there is none", spec, result.Devices.Results)
	}
	if err := q.oracle.Take(name, spec, result.Devices.Results); err != nil {
		q.t.Fatal(err)
	}
	q.tally.found++
	q.scheduler.Take(result)
	q.live = append(q.live, living{name, result})
}

func (q *sequence) leave(i int) {
	q.oracle.Release(q.live[i].name)
	q.scheduler.Release(q.live[i].result)
	q.live = slices.Delete(q.live, i, i+1)
}

// randomClaim asks for anything that people ask for: mostly one kind of device, small counts more
// often.
func randomClaim(r *rand.Rand) claim.Spec {
	count := func() int { return []int{1, 1, 1, 2, 2, 3, 4, 4, 5, 8}[r.IntN(10)] }
	switch r.IntN(12) {
	case 0, 1:
		return claim.Spec{GPUs: count()}
	case 2:
		return claim.Spec{VFs: count()}
	case 3:
		return claim.Spec{Pairs: 1 + r.IntN(2), GPUs: 1 + r.IntN(2), VFs: r.IntN(2)}
	case 4:
		return claim.Spec{GPUs: 1 + r.IntN(3), VFs: 1 + r.IntN(3)}
	case 5:
		return claim.Spec{Bundles: 1 + r.IntN(2), Pairs: r.IntN(2)}
	case 6:
		return claim.Spec{Pairs: count(), Near: true}
	case 7:
		same := []resourceapi.FullyQualifiedName{claim.NUMANode, claim.Hive}
		return claim.Spec{Pairs: count(), Same: same[r.IntN(2)]}
	case 8:
		return claim.Spec{Pairs: min(4, count()), Distinct: scheduler.Minor >= 36}
	default:
		return claim.Spec{Pairs: count()}
	}
}

// build is pool.Build, which a test of the tests replaces.
var build = pool.Build

var shipped = sync.OnceValues(func() (scheduler.Classes, error) {
	return scheduler.ReadClasses(deviceClasses)
})

func classes(tb testing.TB) scheduler.Classes {
	tb.Helper()
	c, err := shipped()
	if err != nil {
		tb.Fatal(err)
	}
	return c
}
