// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/model"
	"github.com/tandem-k8s/tandem/test/simulation/hardware"
	"github.com/tandem-k8s/tandem/test/simulation/seeds"
)

// effects are the effects of events by kind. Faults end a calm, so that no part of a script judges a node
// under faults.
var effects = map[Kind]func(*Simulation, Event) error{
	podArrives: (*Simulation).arrive,
	podRuns:    (*Simulation).runPod,
	podEnds:    (*Simulation).endPod,

	processStarts:   (*Simulation).startProcess,
	processStops:    (*Simulation).stopProcess,
	processKilled:   (*Simulation).killProcess,
	processReplaced: (*Simulation).replaceProcess,

	callFails:      (*Simulation).expectCall,
	pluginsApart:   (*Simulation).part,
	pluginsMeet:    (*Simulation).meet,
	recordDisturbs: (*Simulation).disturbRecord,
	machineChanges: (*Simulation).changeMachine,
	conditionMet:   (*Simulation).meetCondition,

	kubeletRestarts: (*Simulation).restartKubelet,
	kubeletReturns:  (*Simulation).returnKubelet,
	kubeletWiped:    (*Simulation).wipeKubelet,

	stormBegins:   (*Simulation).beginStorm,
	stormEnds:     (*Simulation).endStorm,
	calmBegins:    (*Simulation).beginCalm,
	timePasses:    func(*Simulation, Event) error { return nil },
	holdersJudged: func(s *Simulation, _ Event) error { return s.checkStatus() },
}

// apply lets an event happen, after the time since the event before.
func (s *Simulation) apply(e Event) error {
	if err := s.bury(); err != nil {
		return err
	}
	switch e.Kind {
	case podArrives, podRuns, podEnds, kubeletReturns: // the kubelet knows the newest lists of the plugins
		if err := s.sync(); err != nil {
			return err
		}
		s.checkLists()
	default:
	}
	seeds.Sleep(e.After)
	return effects[e.Kind](s, e)
}

// living returns a living pod of a name, the oldest or the newest; nil for none.
func (s *Simulation) living(name string, newest bool) (found *model.Pod) {
	for _, p := range s.kubelet.Pods() {
		if p.Name == name && (found == nil || newest) {
			found = p
		}
	}
	return found
}

// arrive admits a pod. In a calm all promises hold once the kubelet has asked twice: the coordinator has then
// read all sources.
func (s *Simulation) arrive(e Event) error {
	pod := podOf(e)
	if slices.ContainsFunc(s.kubelet.Pods(), func(p *model.Pod) bool { return p.Pod == pod.Pod }) {
		s.note("two pods have one name")
	}
	s.claim(pod)
	s.count(pod)
	s.judging = s.settled() && !s.excused
	defer func() { s.judging, s.expected = false, nil }()
	s.kubelet.Roll(e.Dice)
	s.admitted++
	err := s.judge(pod)
	if s.excused {
		err = errors.Join(err, s.undoConditions())
	}
	return err
}

// settled reports whether all promises hold.
func (s *Simulation) settled() bool { return s.calm && s.asked >= s.calmFrom+2 }

func (s *Simulation) runPod(e Event) error {
	if p := s.living(e.Name, e.Newest); p != nil {
		s.kubelet.Run(p)
	}
	return nil
}

func (s *Simulation) endPod(e Event) error {
	if p := s.living(e.Name, e.Newest); p != nil {
		s.end(p)
	}
	return nil
}

func (s *Simulation) startProcess(e Event) error {
	if !slices.Contains(s.names(), e.Name) || s.process(e.Name) != nil {
		return nil
	}
	s.trace("%s starts", e.Name)
	return s.begin(e.Name)
}

func (s *Simulation) stopProcess(e Event) error {
	p := s.process(e.Name)
	if p == nil {
		return nil
	}
	s.note("a plugin ends")
	s.trace("%s ends", e.Name)
	return s.finish(p)
}

func (s *Simulation) killProcess(e Event) error {
	if p := s.process(e.Name); p != nil {
		s.note("a plugin is killed")
		s.killed(p, e.Leaves)
	}
	return s.bury()
}

// replaceProcess starts a second instance of a process before the first ends.
func (s *Simulation) replaceProcess(e Event) error {
	first := s.process(e.Name)
	if first == nil {
		return nil
	}
	s.note("a plugin is replaced while it runs")
	if err := s.begin(e.Name); err != nil {
		return err
	}
	seeds.Sleep(e.Late)
	return s.finish(first)
}

// expectCall keeps the fault of a call until the admission of the next pod.
func (s *Simulation) expectCall(e Event) error {
	if !slices.Contains(callFaults, callFault(e.What)) {
		return fmt.Errorf("expect a call: %q is unknown", e.What)
	}
	s.calm, s.expected = false, append(s.expected, e)
	return nil
}

func (s *Simulation) part(Event) error {
	s.note("the plugins lose each other")
	s.network.block(true)
	return nil
}

func (s *Simulation) meet(Event) error {
	s.network.block(false)
	return nil
}

func (s *Simulation) disturbRecord(e Event) error {
	what, err := s.records.set(e)
	if what != "" {
		s.note(what)
	}
	return err
}

func (s *Simulation) changeMachine(e Event) error {
	s.note(e.What)
	return s.hardware.Apply(hardware.Change{What: hardware.What(e.What), Of: e.Of})
}

func (s *Simulation) restartKubelet(Event) error {
	s.note("the kubelet starts anew")
	s.kubelet.Restart()
	s.reconnect()
	return nil
}

func (s *Simulation) returnKubelet(Event) error {
	if !s.kubelet.Ready() {
		s.kubelet.Return()
	}
	return nil
}

func (s *Simulation) wipeKubelet(Event) error {
	s.note("the kubelet's checkpoint is wiped")
	if err := s.kubelet.Wipe(); err != nil {
		return err
	}
	s.reconnect()
	return nil
}

// reconnect ends all connections of a kubelet that restarts. The plugins register again.
func (s *Simulation) reconnect() {
	s.endpoints.closeStreams()
	for _, resource := range []string{model.GPUs, model.VFs} {
		s.kubelet.Devices[resource], s.kubelet.Failed[resource] = []device.Device{}, nil
		delete(s.sent, resource)
	}
}

func (s *Simulation) beginStorm(Event) error {
	s.trace("a storm begins")
	s.records.crowd(nil)
	s.calm, s.raging, s.kubelet.Trouble = false, true, model.Trouble{Fail: 0.1, Change: 0.1, End: 0.1}
	s.unwritten = nil // what was there before the last storm has been written since
	return nil
}

// endStorm ends all faults; processes that have ended are still away.
func (s *Simulation) endStorm(Event) error {
	s.trace("the storm ends")
	s.raging, s.kubelet.Trouble = false, model.Trouble{}
	if err := s.undoConditions(); err != nil {
		return err
	}
	s.records.heal()
	s.network.block(false)
	s.hardware.Heal()
	return s.bury()
}

// recovery is the time after which all parts work again: a source of requests is asked again after a minute
// at the latest.
const recovery = 65 * time.Second

// beginCalm ends all faults, starts what has ended, and waits until all parts work again.
func (s *Simulation) beginCalm(e Event) error {
	if err := s.endStorm(e); err != nil {
		return err
	}
	if err := s.beginAbsent(); err != nil {
		return err
	}
	for !s.kubelet.Ready() {
		s.kubelet.Return()
	}
	s.endTwins()
	seeds.Sleep(recovery)
	s.calm, s.calmFrom = true, s.asked
	return nil
}

// endTwins ends all pods of a name but the newest.
func (s *Simulation) endTwins() {
	newest := map[kubelet.Pod]bool{}
	for _, p := range slices.Backward(s.kubelet.Pods()) {
		if newest[p.Pod] {
			s.end(p)
		}
		newest[p.Pod] = true
	}
}
