// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/tandem-k8s/tandem/test/simulation/seeds"
)

// Numbers of steps of a cycle: a storm, then a calm.
const (
	stormSteps = 14
	calmSteps  = 6
)

// Simulation is a node under faults that depend on a seed alone.
type Simulation struct {
	*Node
	seed    uint64
	random  *rand.Rand // of pods and time
	faults  *rand.Rand
	raging  bool
	judging bool // a calm: every promise holds
	deaf    bool // the kubelet does not receive the answer
	// a feature gate has changed since the last calm
	switched bool

	broken   string
	happened map[string]int
	cycles   int
	waiting  []condition // dealt, each until it comes about, the oldest first
	met      bool        // a condition has come about in the storm
	steps    int
	arrived  int
}

// OptionsOf returns the properties of a seed's node.
func OptionsOf(seed uint64) Options {
	return Options{
		Machine: []string{"oci-mi300x-derived", "amd-mi250-16gcd-8nic"}[seed/2%2], VFs: 1 + int(seed%2),
		Counters: seed%4 != 1, Taints: seed%5 != 2, Rolling: seed%3 != 0, PodsAPI: seed/2%2 == 0,
		Migrated: seed%3 == 1,
	}
}

// Run runs a seed for at most a number of steps, until a violation, in a bubble of package synctest. The
// directory must be empty.
func Run(dir string, seed uint64, options Options, steps int, log *slog.Logger) (*seeds.Report, error) {
	node, err := newNode(dir, seed, options, log)
	if err != nil {
		return nil, err
	}
	s := &Simulation{
		Node: node, seed: seed, random: rand.New(rand.NewPCG(seed, 35)), faults: rand.New(rand.NewPCG(seed, 36)),
		happened: map[string]int{},
	}
	if err := s.run(steps); err != nil {
		return nil, fmt.Errorf("seed %d, step %d: %w\n%s", seed, s.steps, err, &s.story)
	}
	return &seeds.Report{
		Seed: seed, Of: fmt.Sprintf("%+v", options),
		Repeat: fmt.Sprintf("go test ./test/simulation/dra -run '^TestDriver$' -admissions=1 -seed=%d", seed),
		Steps:  s.steps, Admissions: s.arrived, Faults: s.happened, Sum: s.story.Sum(), Violation: s.broken,
		Events: s.story.Lines(),
	}, nil
}

// run lives, and stops all processes at the end: a bubble has to be left without a process.
func (s *Simulation) run(steps int) error {
	err := s.live(steps)
	s.raging, s.judging = false, false
	return errors.Join(err, s.stop())
}

// live alternates storms with calms.
func (s *Simulation) live(steps int) error {
	if err := s.begin(); err != nil {
		return err
	}
	s.register()
	seeds.Sleep(recovery)
	for s.steps < steps && s.broken == "" {
		if err := s.cycle(); err != nil {
			return err
		}
	}
	return nil
}

// cycle is a storm and a calm.
func (s *Simulation) cycle() error {
	if err := s.turn(); err != nil {
		return err
	}
	s.rage()
	s.deal()
	for i := range stormSteps {
		if err := s.step(); err != nil || s.broken != "" {
			return err
		}
		if i < stormSteps/2 || s.draining {
			continue
		}
		if err := s.meetDealt(); err != nil {
			return err
		}
	}
	if err := s.settle(); err != nil || s.broken != "" {
		return err
	}
	if s.draining {
		s.checkDrained()
		return nil
	}
	s.judging = true
	defer func() { s.judging = false }()
	s.checkCalm()
	for range calmSteps {
		if err := s.step(); err != nil || s.broken != "" {
			return err
		}
	}
	return nil
}

// step lets a pod come or end, and, in a storm, faults happen.
func (s *Simulation) step() error {
	s.steps++
	seeds.Sleep(s.lull())
	if failed := s.reap(); failed != nil {
		s.checkAlive(failed)
	}
	if s.raging {
		if err := s.strike(); err != nil {
			return err
		}
	}
	s.register()
	s.work()
	s.checkAlways()
	if s.broken != "" {
		return nil
	}
	if living := s.living(); len(living) > 0 && s.random.IntN(100) < 40 {
		s.end(living[s.random.IntN(len(living))])
	} else {
		s.admit()
	}
	s.checkAlways()
	if s.judging && s.broken == "" {
		s.endOld()
		seeds.Sleep(look)
		s.checkCalm()
	}
	return nil
}

// endOld ends a pod with devices from a device plugin, by chance: the driver sees the end.
func (s *Simulation) endOld() {
	if s.random.IntN(10) > 0 {
		return
	}
	if name := s.old.end(); name != "" {
		s.trace("%s ends", name)
	}
}

// living returns the pods that have not ended.
func (s *Simulation) living() (pods []*pod) {
	for _, p := range s.pods {
		if !p.ending && !p.forgotten {
			pods = append(pods, p)
		}
	}
	return pods
}

// admit lets a pod arrive and prepares its claims.
func (s *Simulation) admit() {
	seeds.Sleep(writing)
	p := s.arrive(s.random)
	if p == nil {
		s.trace("a pod has no place")
		return
	}
	s.arrived++
	s.trace("%s arrives", p)
	if err := s.prepare(p); err != nil {
		s.checkPrepare(p, err)
	}
}

// end ends a pod, in a storm also by a forced deletion, which the kubelet may never hear of.
func (s *Simulation) end(p *pod) {
	s.trace("%s ends", p)
	if s.strikes(chanceOfForce) {
		s.note("a pod is deleted by force")
		s.remove(p)
		if s.strikes(chanceOfForgotten) {
			s.note("the kubelet forgets a pod")
			s.forget(p)
			return
		}
	}
	p.ending = true
	if !s.strikes(chanceOfForce) {
		s.unprepare(p)
	}
}

// lull returns the time until the next step.
func (s *Simulation) lull() time.Duration {
	if s.random.IntN(30) == 0 {
		return time.Duration(1+s.random.IntN(300)) * time.Second
	}
	return time.Duration(1+s.random.IntN(20_000)) * time.Millisecond
}

// note tells of a fault or an event, and counts a fault.
func (s *Simulation) note(what string) {
	s.happened[what]++
	s.trace("fault: %s", what)
}

// wrong records the first violation.
func (s *Simulation) wrong(promise, format string, args ...any) {
	if s.broken == "" {
		s.broken = promise + ": " + fmt.Sprintf(format, args...)
		s.trace("VIOLATION: %s", s.broken)
	}
}
