// SPDX-License-Identifier: Apache-2.0

package dra_test

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/kubernetes/dra/claim"
	"github.com/tandem-k8s/tandem/test/kubernetes/dra/form"
	"github.com/tandem-k8s/tandem/test/kubernetes/dra/node"
	"github.com/tandem-k8s/tandem/test/kubernetes/dra/scheduler"
	"github.com/tandem-k8s/tandem/test/simulate"
)

var arrivals = flag.Int("arrivals", 300, "containers that come to each machine in TestSimulatedMix")

// The containers of tandem-lab simulate, as claims: every pair is on one switch, and what is published as
// pairs refuses no more of them than GPUs and VFs that constraints match.
func TestSimulatedMix(t *testing.T) {
	mix, err := simulate.ParseMix(simulate.DefaultMix)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		machine  string
		vfsPerPF int
	}{
		{"oci-mi300x-derived", 1}, {"oci-mi300x-derived", 2}, {"oci-mi300x-derived", 8},
		{"amd-mi250-16gcd-8nic", 1}, {"amd-mi250-16gcd-8nic", 2}, {"amd-mi250-16gcd-8nic", 8},
		{"nv-h100-aws-p5", 2},
	} {
		m, err := node.Read(c.machine, c.vfsPerPF)
		if err != nil {
			t.Fatal(err)
		}
		for _, load := range []float64{0.3, 0.6, 0.9} {
			t.Run(fmt.Sprintf("%s/vfs=%d/load=%g", c.machine, c.vfsPerPF, load), func(t *testing.T) {
				t.Parallel()
				rate := load * float64(len(m.GPUs)) / meanGPUs(mix)
				counters := scheduler.Minor >= 36
				ours := build(m, pool.Options{Counters: counters, Taints: counters})
				pairs := newSimulated(t, m, ours.Slices, pairRequest)
				plain := newSimulated(t, m, form.Plain(m), plainRequest)
				for _, s := range []*simulated{pairs, plain} {
					s.play(mix, rate, rand.New(rand.NewPCG(*seed, uint64(c.vfsPerPF))))
				}
				t.Logf("pairs: %v", pairs)
				t.Logf("plain: %v", plain)
				if pairs.near < pairs.pairs {
					t.Errorf("%d of %d pairs are on one switch", pairs.near, pairs.pairs)
				}
				// without counters the VF of a GPU is nobody else's, which refuses VF-only containers
				if tolerated := *arrivals / 50; counters && pairs.refused() > plain.refused()+tolerated {
					t.Errorf("%d refused, %d with plain devices", pairs.refused(), plain.refused())
				}
			})
		}
	}
}

func meanGPUs(mix simulate.Mix) float64 {
	gpus, weight := 0.0, 0.0
	for _, share := range mix {
		gpus += share.Weight * float64(share.Request.GPUs)
		weight += share.Weight
	}
	return gpus / weight
}

// simulated is a node to which containers come, each with a claim.
type simulated struct {
	t         *testing.T
	machine   pool.Machine
	scheduler *scheduler.Scheduler
	devices   map[string]resourceapi.Device
	request   func(name string, r simulate.Request) *resourceapi.ResourceClaim
	free      map[string][2]int // GPUs and VFs by switch
	numbers   [2]int            // free GPUs and VFs
	leave     []departure

	started, fitting      int // containers; those that there were enough GPUs and VFs for
	pairs, near           int
	stranded, busy, spent float64
}

type departure struct {
	at     float64
	result *resourceapi.AllocationResult
}

// refused is how many did not start though there were enough GPUs and VFs: not those that did not fit because
// larger ones had started.
func (s *simulated) refused() int { return s.fitting - s.started }

func (s *simulated) String() string {
	return fmt.Sprintf("%d of %d started, %d refused though there were enough devices; "+
		"%d of %d pairs on one switch; "+
		"%.0f %% of GPUs in use, %.2f stranded", s.started, *arrivals, s.refused(), s.near, s.pairs,
		100*s.busy/s.spent, s.stranded/s.spent)
}

func newSimulated(
	t *testing.T, m pool.Machine, contents []pool.Slice,
	request func(name string, r simulate.Request) *resourceapi.ResourceClaim,
) *simulated {
	s := &simulated{
		t: t, machine: m, request: request, devices: map[string]resourceapi.Device{}, free: map[string][2]int{},
		scheduler: scheduler.New(scheduler.Publish(pool.Driver, contents), classes(t), scheduler.Defaults()),
	}
	for _, content := range contents {
		for _, d := range content.Devices {
			s.devices[d.Name] = d
		}
	}
	for _, gpu := range m.GPUs {
		s.count(gpu.Switch, 1, 0)
	}
	for _, vf := range m.VFs {
		s.count(vf.Switch, 0, 1)
	}
	return s
}

// count adds free GPUs and VFs.
func (s *simulated) count(on string, gpus, vfs int) {
	free := s.free[on]
	s.free[on] = [2]int{free[0] + gpus, free[1] + vfs}
	s.numbers[0] += gpus
	s.numbers[1] += vfs
}

// pairRequest asks for devices that are pairs.
func pairRequest(name string, r simulate.Request) *resourceapi.ResourceClaim {
	return claim.Spec{Pairs: r.Pairs(), GPUs: r.GPUs - r.Pairs(), VFs: r.VFs - r.Pairs()}.Claim(name)
}

// plainRequest asks for GPUs and VFs that match.
func plainRequest(name string, r simulate.Request) *resourceapi.ResourceClaim {
	c := claim.Plain(name, r.Pairs())
	rest := claim.Spec{GPUs: r.GPUs - r.Pairs(), VFs: r.VFs - r.Pairs()}.Claim(name)
	c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, rest.Spec.Devices.Requests...)
	return c
}

// play lets containers come as a Poisson process and stay for exponential times, as package simulation
// does.
func (s *simulated) play(mix simulate.Mix, rate float64, r *rand.Rand) {
	now := 0.0
	for i := range *arrivals {
		gap, holds, what := r.ExpFloat64()/rate, r.ExpFloat64(), mix[mix.At(r.Float64())].Request
		s.advance(now, now+gap)
		now += gap
		s.arrive(fmt.Sprintf("claim-%d", i), what, now+holds)
	}
}

func (s *simulated) advance(now, to float64) {
	for len(s.leave) > 0 && s.leave[0].at <= to {
		s.pass(s.leave[0].at - now)
		now = s.leave[0].at
		s.scheduler.Release(s.leave[0].result)
		s.move(s.leave[0].result, 1)
		s.leave = s.leave[1:]
	}
	s.pass(to - now)
}

// pass counts what the node is like for a time.
func (s *simulated) pass(time float64) {
	free, left := 0, s.numbers[1]
	for _, f := range s.free {
		free += min(f[0], f[1])
	}
	s.spent += time
	s.busy += time * float64(len(s.machine.GPUs)-s.numbers[0]) / float64(len(s.machine.GPUs))
	s.stranded += time * float64(min(s.numbers[0], left)-free)
}

func (s *simulated) arrive(name string, r simulate.Request, until float64) {
	if r.GPUs > s.numbers[0] || r.VFs > s.numbers[1] {
		return
	}
	s.fitting++
	if s.possible() < r.Pairs() {
		return // no need to search for what there is not
	}
	result, _, err := s.scheduler.Within(200_000, s.request(name, r))
	if err != nil {
		s.t.Fatalf("%v: %v", r, err)
	}
	if result == nil {
		return
	}
	s.scheduler.Take(result)
	s.started++
	s.pairs += r.Pairs()
	s.near += s.move(result, -1)
	s.leave = append(s.leave, departure{until, result})
	slices.SortStableFunc(s.leave, func(a, b departure) int { return cmp.Compare(a.at, b.at) })
}

// possible is how many pairs could be made of what is free, if nothing were reserved.
func (s *simulated) possible() (pairs int) {
	for _, free := range s.free {
		pairs += min(free[0], free[1])
	}
	return pairs
}

// move gives (1) or takes (-1) the GPUs and VFs of a result, and counts its pairs on one switch.
func (s *simulated) move(result *resourceapi.AllocationResult, sign int) (near int) {
	got := map[string][2]int{}
	for _, r := range result.Devices.Results {
		d := s.devices[r.Device]
		on, gpus, vfs := s.where(d), 0, 0
		switch kind := pool.Type(*d.Attributes["type"].StringValue); {
		case kind == pool.TypePair || kind == pool.TypeGPUVF && r.Request == "pairs":
			gpus, vfs = 1, 1
		case kind == pool.TypeVF:
			vfs = 1
		default:
			gpus = 1
		}
		s.count(on, sign*gpus, sign*vfs)
		got[on] = [2]int{got[on][0] + gpus, got[on][1] + vfs}
	}
	for _, g := range got {
		near += min(g[0], g[1])
	}
	return near
}

func (s *simulated) where(d resourceapi.Device) string {
	if on := d.Attributes["pcieSwitch"].StringValue; on != nil {
		return *on
	}
	return *d.Attributes["resource.kubernetes.io/pcieRoot"].StringValue
}
