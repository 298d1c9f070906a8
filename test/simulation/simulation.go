// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/verdict"
	"github.com/tandem-k8s/tandem/test/model"
	"github.com/tandem-k8s/tandem/test/simulation/seeds"
)

// Numbers of steps of a cycle: a storm, then a calm.
const (
	stormSteps = 12
	calmSteps  = 12
)

// Simulation is a node under faults that depend on a seed alone.
type Simulation struct {
	*Node
	seed   uint64
	random *rand.Rand // of pods and time
	faults *rand.Rand
	events []Event // that have happened

	raging   bool
	judging  bool    // every promise holds
	calm     bool    // no fault since the begin of a calm
	calmFrom int     // questions of the kubelet before the calm
	expected []Event // faults of calls during the next admission

	circumstances
	unwritten []byte // the coordinator's file before the call in progress
	broken    string
	happened  map[string]int
	steps     int
	admitted  int
	asked     int // questions of the kubelet
}

// Run runs a seed for at most a number of steps, until a violation, in a bubble of package synctest. The
// directory must be empty.
func Run(dir string, seed uint64, options Options, steps int, log *slog.Logger) (*seeds.Report, error) {
	node, err := newNode(dir, seed, options, log)
	if err != nil {
		return nil, err
	}
	s := newSimulation(node, seed)
	if err := s.whole(func() error { return s.run(steps) }); err != nil {
		return nil, fmt.Errorf("seed %d, step %d: %w\n%s", seed, s.steps, err, &s.story)
	}
	report := s.report()
	report.Script = s.script().String()
	return report, nil
}

// newSimulation returns a simulation of a node.
func newSimulation(node *Node, seed uint64) *Simulation {
	s := &Simulation{
		Node: node, seed: seed, random: rand.New(rand.NewPCG(seed, 31)), faults: rand.New(rand.NewPCG(seed, 32)),
		happened: map[string]int{}, circumstances: circumstances{lost: map[string][]*model.Pod{}},
	}
	node.kubelet.Now = time.Now
	for _, value := range node.options.values() {
		s.happened[value]++
	}
	return s
}

// boot starts all processes.
func (s *Simulation) boot() error {
	if err := s.beginAbsent(); err != nil {
		return err
	}
	return s.sync()
}

// beginAbsent starts the processes that do not run, one after another: of two at a time a random one would
// serve.
func (s *Simulation) beginAbsent() error {
	for _, name := range s.names() {
		if s.process(name) != nil {
			continue
		}
		s.trace("%s starts", name)
		if err := s.begin(name); err != nil {
			return err
		}
		seeds.Sleep(time.Second)
	}
	return nil
}

// whole runs the node's life around its events.
func (s *Simulation) whole(live func() error) error {
	err := s.boot()
	if err == nil {
		err = live()
	}
	s.raging, s.judging = false, false
	return errors.Join(err, s.Node.stop()) // a bubble has to be left without a process
}

// run alternates storms with calms.
func (s *Simulation) run(steps int) error {
	for s.steps < steps && s.broken == "" {
		if err := s.cycle(); err != nil {
			return err
		}
	}
	return nil
}

// do lets an event happen, unless a promise is broken.
func (s *Simulation) do(e Event) error {
	if s.broken != "" {
		return nil
	}
	s.events = append(s.events, e)
	return s.apply(e)
}

// cycle is a storm and a calm.
func (s *Simulation) cycle() error {
	if err := s.do(Event{Kind: stormBegins}); err != nil {
		return err
	}
	s.deal()
	for range stormSteps {
		if err := s.step(); err != nil || s.broken != "" {
			return err
		}
	}
	if err := s.settle(); err != nil {
		return err
	}
	s.met = false
	for range calmSteps {
		if err := s.step(); err != nil || s.broken != "" {
			return err
		}
	}
	return s.do(Event{Kind: holdersJudged})
}

// step lets a pod come or end, and, in a storm, faults happen.
func (s *Simulation) step() error {
	s.steps++
	if err := s.meetDealt(); err != nil {
		return err
	}
	if s.raging {
		if err := s.strike(); err != nil {
			return err
		}
	}
	for _, p := range s.kubelet.Pods() {
		if !p.Started() && s.random.IntN(2) == 0 {
			if err := s.do(Event{Kind: podRuns, Name: p.Name, Newest: s.living(p.Name, true) == p}); err != nil {
				return err
			}
		}
	}
	if !s.kubelet.Ready() {
		if err := s.do(Event{Kind: kubeletReturns}); err != nil {
			return err
		}
	}
	if len(s.kubelet.Pods()) > 0 && s.random.IntN(100) < 45 {
		return s.endSome()
	}
	return s.admit()
}

// endSome ends a random pod.
func (s *Simulation) endSome() error {
	pods := s.kubelet.Pods()
	if len(pods) == 0 {
		return nil
	}
	p := pods[s.random.IntN(len(pods))]
	return s.do(Event{Kind: podEnds, Name: p.Name, Newest: s.living(p.Name, false) != p})
}

// admit admits a random pod.
func (s *Simulation) admit() error {
	s.kubelet.Roll(s.random.Uint64())
	pod := s.kubelet.Random()
	if living := s.kubelet.Pods(); len(living) > 0 && s.strikes(chanceOfTwin) {
		pod.Pod = living[s.faults.IntN(len(living))].Pod
	} else if s.alike && len(living) > 0 {
		s.alike = false
		pod.Pod = kubelet.Pod{Namespace: other, Name: living[s.faults.IntN(len(living))].Name}
	}
	if s.options.Required && s.random.IntN(3) == 0 {
		pod.Alignment = intent.Preferred
	}
	if err := s.aim(pod); err != nil {
		return err
	}
	e := arrivalOf(pod)
	e.After, e.Dice = s.lull(), uint64(s.random.IntN(1000))
	return s.do(e)
}

// judge admits a pod, and judges the admission in a calm: the kubelet has the plugins' newest lists, as a
// kubelet that gets a list at once, no list changes during the admission, and no device of a list is gone.
func (s *Simulation) judge(pod *model.Pod) error {
	var told *verdict.Verdict
	if s.judging && s.options.Published {
		var err error
		if told, err = s.foretell(pod); err != nil {
			return err
		}
	}
	if err := s.sync(); err != nil {
		return err
	}
	updates, stale := s.updates, s.isStale()
	s.trace("%s arrives: %v", pod.Name, pod)
	err := s.kubelet.Admit(pod, s)
	s.trace("%s, %s: %v", pod.Name, pod.UID, verdictText(err))
	s.checkOwners()
	if failure := s.sync(); failure != nil {
		return failure
	}
	if s.judging && s.updates == updates && !stale {
		s.checkAdmission(pod, err)
		s.checkVerdict(pod, told, err)
	}
	return nil
}

// verdictText returns the kubelet's decision for people.
func verdictText(err error) string {
	if err != nil {
		return "rejected: " + err.Error()
	}
	return "admitted"
}

// end ends a pod.
func (s *Simulation) end(p *model.Pod) {
	s.trace("%s, %s, ends", p.Name, p.UID)
	s.kubelet.End(p)
}

// lull returns the time until the next admission.
func (s *Simulation) lull() time.Duration {
	if s.random.IntN(50) == 0 {
		return time.Duration(1+s.random.IntN(700)) * time.Second
	}
	return admission.FollowWindow * time.Duration(1+s.random.IntN(2000))
}

// note tells of a fault, which ends a calm, and counts the fault.
func (s *Simulation) note(what string) {
	s.calm = false
	s.happened[what]++
	s.trace("fault: %s", what)
}

func (s *Simulation) trace(format string, args ...any) { s.story.Add(fmt.Sprintf(format, args...)) }

// wrong records the first violation.
func (s *Simulation) wrong(promise, format string, args ...any) {
	if s.broken == "" {
		s.broken = promise + ": " + fmt.Sprintf(format, args...)
		s.trace("VIOLATION: %s", s.broken)
		for _, difference := range s.differences() {
			s.trace("%s", difference)
		}
	}
}

// command returns the command that repeats the run of a seed.
func (s *Simulation) command() string {
	command := fmt.Sprintf("go test ./test/simulation -run '^TestNode$' -admissions=1 -seed=%d", s.seed)
	if s.options.Condition != "" {
		command += fmt.Sprintf(" -condition='%s'", s.options.Condition)
	}
	return command
}

// report returns the result.
func (s *Simulation) report() *seeds.Report {
	return &seeds.Report{
		Seed: s.seed, Of: fmt.Sprintf("%+v: %d questions", s.options, s.asked),
		Repeat: s.command(), Steps: s.steps, Admissions: s.admitted, Faults: s.happened,
		Sum: s.story.Sum(), Violation: s.broken, Events: s.story.Lines(),
	}
}

var _ model.Plugins = (*Simulation)(nil)
