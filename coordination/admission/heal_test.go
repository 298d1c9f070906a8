// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/model"
	"github.com/tandem-k8s/tandem/test/scale"
)

var (
	admissions = flag.Int("admissions", 20_000, "admissions of TestFaultsHeal, over all sources of requests")
	firstSeed  = flag.Uint64("seed", 1, "first seed of TestFaultsHeal")
)

// Chances of faults during a storm, for each call or step.
const (
	chanceOfCallFault   = 0.15
	chanceOfReadFault   = 0.1
	chanceOfCrash       = 0.05
	chanceOfSave        = 0.3
	chanceOfKubeletStop = 0.05
)

// Numbers of steps.
const (
	stormSteps = 12
	calmSteps  = 12
	runSteps   = 20 * (stormSteps + calmSteps)
)

// storm is a simulation: storms, with faults of every call, alternate with calms without a fault. Every
// random number depends on the seed alone.
type storm struct {
	*judge
	faults, reads *rand.Rand
	raging        bool
	saved         []byte       // state in the coordinator's file
	outdated      []intent.Pod // pods of an API server that is behind; nil if the API server is not
	happened      map[string]int
	admitted      int
	questions     int // of the kubelet
}

// newStorm returns a simulation in which every source can fail.
func newStorm(t *testing.T, seed uint64, source intent.Source) *storm {
	s := &storm{
		judge: newJudge(t, seed, source, trouble{}), faults: rand.New(rand.NewPCG(seed, 21)),
		reads: rand.New(rand.NewPCG(seed, 22)), happened: map[string]int{},
	}
	c := s.coordinator.Config
	look, get, recorded, pods := c.Look, c.Get, c.Recorded, c.Pods
	away := errors.New("away")
	c.Look = func(ctx context.Context) (kubelet.View, error) {
		if s.fails("List fails") {
			return kubelet.View{}, away
		}
		return look(ctx)
	}
	c.Get = func(ctx context.Context, pod kubelet.Pod) (kubelet.View, error) {
		if s.fails("Get fails") {
			return kubelet.View{}, away
		}
		return get(ctx, pod)
	}
	c.Recorded = func() (kubelet.Checkpoint, error) {
		if s.fails("the checkpoint cannot be read") {
			return kubelet.Checkpoint{}, away
		}
		return recorded()
	}
	// The coordinator reads this source in parallel to others, so its faults begin before a question (disturb).
	c.Pods = func(ctx context.Context) (intent.Answer, bool) {
		answer, told := pods(ctx)
		if s.outdated != nil && source == intent.APIServer {
			answer.Pods = s.outdated
		}
		return answer, told
	}
	return s
}

// fails reports whether a read fails.
func (s *storm) fails(what string) bool {
	if !s.raging || s.reads.Float64() >= chanceOfReadFault {
		return false
	}
	s.note(what)
	return true
}

// strikes reports whether a fault happens.
func (s *storm) strikes(chance float64) bool { return s.raging && s.faults.Float64() < chance }

// note counts a fault and tells of the fault.
func (s *storm) note(what string) {
	s.happened[what]++
	s.kubelet.Trace = append(s.kubelet.Trace, "fault: "+what)
}

// disturb saves the state, kills the coordinator, and lets the API server fall behind, by chance.
func (s *storm) disturb() {
	if s.strikes(chanceOfSave) {
		s.saved = encoded(s.t, s.coordinator)
	}
	if s.strikes(chanceOfCrash) {
		s.crash()
	}
	if s.strikes(chanceOfReadFault) {
		s.outdated = nil
		if s.faults.IntN(2) == 0 {
			s.note("the API server falls behind")
			s.outdated, _ = s.kubelet.Tell()
		}
	}
}

// crash replaces the coordinator by a coordinator that begins with the file as last written, or without a
// file.
func (s *storm) crash() {
	old := s.coordinator
	next := (&Coordinator{Config: old.Config}).startAt(old.current().tree, old.now)
	var saved savedState
	switch {
	case s.faults.IntN(4) == 0 || s.saved == nil:
		s.note("the coordinator is killed, and its file is lost")
	case json.Unmarshal(s.saved, &saved) != nil:
		s.t.Fatalf("the file is damaged: %s", s.saved)
	default:
		s.note("the coordinator is killed")
		if err := next.restore(saved, next.Log); err != nil {
			s.t.Fatal(err)
		}
	}
	next.restoreHolders(next.Recorded, next.Log)
	s.coordinator = next
	s.announce()
}

// Prefer puts a question of the kubelet to the coordinator. After a fault the plugin answers alone.
func (s *storm) Prefer(p *model.Pod, c *model.Container, q model.Question) []string {
	s.questions++
	s.disturb()
	if !s.strikes(chanceOfCallFault) {
		if !s.raging {
			return s.judge.Prefer(p, c, q)
		}
		ids, why, err := s.coordinator.prefer(s.t.Context(), asking.Question(q))
		if err != nil {
			return s.alone(q)
		}
		s.checkAnswer(q, ids, why)
		return ids
	}
	switch s.faults.IntN(4) {
	case 0:
		s.note("a question is lost")
	case 1:
		s.note("a question is late")
		ctx, cancel := context.WithCancel(s.t.Context())
		cancel()
		_, _, _ = s.coordinator.prefer(ctx, asking.Question(q)) // the plugin does not wait for an answer
	case 2:
		s.note("an answer is lost")
		_, _, _ = s.coordinator.prefer(s.t.Context(), asking.Question(q)) // likewise
	case 3:
		s.note("a question comes twice")
		_, _, _ = s.coordinator.prefer(s.t.Context(), asking.Question(q)) // the second answer counts
		if ids, why, err := s.coordinator.prefer(s.t.Context(), asking.Question(q)); err == nil {
			s.checkAnswer(q, ids, why)
			return ids
		}
	}
	return s.alone(q)
}

// checkAnswer judges an answer by the contract of GetPreferredAllocation.
func (s *storm) checkAnswer(q model.Question, ids []string, why string) {
	distinct := map[string]bool{}
	for _, id := range ids {
		distinct[id] = slices.Contains(q.Available, id)
	}
	for _, id := range q.MustInclude {
		distinct[id] = distinct[id] && slices.Contains(ids, id)
	}
	wrong := slices.Contains(slices.Collect(maps.Values(distinct)), false)
	if wrong || len(distinct) != q.Size || len(ids) != q.Size {
		s.wrong("an answer that breaks the contract", "%v: %v: %s", q, ids, why)
	}
}

// alone is the answer of a plugin without the coordinator: any devices.
func (s *storm) alone(q model.Question) []string {
	ids := slices.Clone(q.MustInclude)
	included := func(id string) bool { return slices.Contains(ids, id) }
	rest := slices.DeleteFunc(slices.Clone(q.Available), included)
	slices.Sort(rest)
	s.faults.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	return append(ids, rest[:q.Size-len(ids)]...)
}

// Allocate reports devices to the coordinator. After a fault the plugin passes on the devices, refused or
// not.
func (s *storm) Allocate(p *model.Pod, c *model.Container, name string, ids []string) bool {
	s.disturb()
	if !s.raging {
		return s.judge.Allocate(p, c, name, ids)
	}
	s.now = s.now.Add(asking.FollowWindow / 4)
	if !s.strikes(chanceOfCallFault) {
		taken, err := s.coordinator.Allocated(s.t.Context(), name, ids)
		return err != nil || taken.Refusal == ""
	}
	switch s.faults.IntN(3) {
	case 0:
		s.note("an Allocate is lost")
	case 1:
		s.note("the answer to an Allocate is lost")
		_, _ = s.coordinator.Allocated(s.t.Context(), name, ids) // the plugin does not wait for the answer
	case 2:
		s.note("an Allocate comes twice")
		for range 2 {
			_, _ = s.coordinator.Allocated(s.t.Context(), name, ids) // likewise
		}
	}
	return true
}

// step lets pods come, end and start, and the kubelet start anew.
func (s *storm) step() {
	s.kubelet.Start()
	pods := s.kubelet.Pods()
	if !s.kubelet.Ready() {
		s.kubelet.Return()
	}
	switch {
	case s.strikes(chanceOfKubeletStop):
		s.note("the kubelet starts anew")
		s.kubelet.Restart()
	case len(pods) > 0 && s.random.IntN(100) < 45:
		s.kubelet.End(pods[s.random.IntN(len(pods))])
	default:
		s.admit()
	}
}

// admit admits a random pod, and judges the pod's pairs in a calm.
func (s *storm) admit() {
	s.now = s.now.Add(asking.FollowWindow * time.Duration(1+s.random.IntN(2000)))
	s.blind = false
	s.admitted++
	if pod := s.kubelet.Random(); s.kubelet.Admit(pod, s) == nil && !s.raging {
		s.checkPairs(pod)
	}
}

// rage lets faults happen for a number of steps.
func (s *storm) rage(steps int) {
	s.raging, s.kubelet.Trouble = true, model.Trouble{Fail: 0.1, Change: 0.1, End: 0.1}
	for range steps {
		s.step()
	}
	s.raging, s.kubelet.Trouble, s.outdated = false, model.Trouble{}, nil
}

// settle waits for the kubelet's start, and admits pods that nobody judges until the kubelet has asked twice:
// the coordinator has then read all sources.
func (s *storm) settle() {
	for !s.kubelet.Ready() {
		s.kubelet.Return()
	}
	s.now = s.now.Add(10 * time.Second)
	found, told := maps.Clone(s.found), maps.Clone(s.told)
	for before := s.questions; s.questions < before+2; {
		if pods := s.kubelet.Pods(); s.random.IntN(2) == 0 && len(pods) > 0 {
			s.kubelet.End(pods[s.random.IntN(len(pods))])
		}
		s.admit()
	}
	s.found, s.told = found, told
}

// healed are violations that a source cannot prevent, in a calm as without any fault before: see troubles.
// With names alone a pod that ends before the next List has shown the pod cannot be told from an init
// container.
func healed(source intent.Source) []string {
	if source == "" {
		return []string{stuck, lostInit, notBest}
	}
	return nil
}

// TestFaultsHeal: whatever has happened before, with all sources back the coordinator is right again: nothing
// is remembered that the next look at the kubelet's records does not mend.
func TestFaultsHeal(t *testing.T) {
	sources := []intent.Source{"", intent.PodsAPI, intent.Kubelet, intent.APIServer}
	runs := scale.Rounds(max(1, *admissions/(len(sources)*runSteps/2)))
	for _, source := range sources {
		for i := range runs {
			seed := *firstSeed + uint64(i)
			t.Run(fmt.Sprintf("source %q, seed %d", source, seed), func(t *testing.T) {
				t.Parallel()
				s := newStorm(t, seed, source)
				for steps := 0; steps < runSteps && !t.Failed(); steps += stormSteps + calmSteps {
					s.rage(stormSteps)
					s.settle()
					for range calmSteps {
						s.step()
					}
					for kind := range s.found {
						if !slices.Contains(healed(source), kind) {
							t.Errorf("admission %d, %s\n%s", s.admitted, kind, s.told[kind])
						}
					}
				}
				total.add(s)
			})
		}
	}
	t.Cleanup(func() { t.Log(&total) })
}

// total counts what all simulations of the process have had.
var total tally

type tally struct {
	admissions, faults atomic.Int64
}

func (a *tally) add(s *storm) {
	a.admissions.Add(int64(s.admitted))
	for _, n := range s.happened {
		a.faults.Add(int64(n))
	}
}

// String returns the counts for people.
func (a *tally) String() string {
	return fmt.Sprintf("%d admissions, %d faults", a.admissions.Load(), a.faults.Load())
}

// TestStormIsDeterministic: a simulation repeats itself to the byte, so that a seed reproduces a finding.
func TestStormIsDeterministic(t *testing.T) {
	t.Parallel()
	run := func() string {
		s := newStorm(t, *firstSeed, intent.PodsAPI)
		s.rage(100)
		s.settle()
		return strings.Join(s.kubelet.Trace, "\n")
	}
	first := run()
	for range 3 {
		if again := run(); again != first {
			t.Fatalf("two runs of a seed differ:\n%s\n\n%s", first, again)
		}
	}
}
