// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"maps"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/test/model"
)

// Chances of faults during a storm, for each call or step.
const (
	chanceOfCallFault   = 0.15
	chanceOfReadFault   = 0.15
	chanceOfDeath       = 0.06
	chanceOfReturn      = 0.5
	chanceOfPartition   = 0.03
	chanceOfHardware    = 0.06
	chanceOfKubeletStop = 0.04
	chanceOfWipe        = 0.01
	chanceOfTwin        = 0.05
	chanceOfLostWrite   = 0.3
	chanceOfDamage      = 0.15
)

// strikes reports whether a fault happens.
func (s *Simulation) strikes(chance float64) bool { return s.raging && s.faults.Float64() < chance }

// strike draws the faults between two admissions.
func (s *Simulation) strike() error {
	if s.strikes(chanceOfReadFault) {
		if err := s.do(s.records.draw(s.faults)); err != nil {
			return err
		}
	}
	if s.strikes(chanceOfPartition) {
		if err := s.do(Event{Kind: pluginsApart}); err != nil {
			return err
		}
	} else if s.network.isBlocked() && s.strikes(chanceOfReturn) {
		if err := s.do(Event{Kind: pluginsMeet}); err != nil {
			return err
		}
	}
	for _, happen := range []func() error{s.killSome, s.reviveSome, s.changeHardware, s.disturbKubelet} {
		if err := happen(); err != nil {
			return err
		}
	}
	return nil
}

// killSome kills a process, or stops one in order.
func (s *Simulation) killSome() error {
	if !s.strikes(chanceOfDeath) || len(s.processes) == 0 {
		return nil
	}
	name := s.processes[s.faults.IntN(len(s.processes))].name
	if s.faults.IntN(3) == 0 {
		return s.do(Event{Kind: processStops, Name: name})
	}
	leaves, err := s.drawDamage()
	if err != nil {
		return err
	}
	return s.do(Event{Kind: processKilled, Name: name, Leaves: leaves})
}

// reviveSome starts processes that have died, or a second instance of one before the first ends.
func (s *Simulation) reviveSome() error {
	for _, name := range s.names() {
		e := Event{Kind: processStarts, Name: name, After: s.shortly()}
		switch alive := s.process(name) != nil; {
		case !alive && s.strikes(chanceOfReturn):
		case alive && s.strikes(chanceOfDeath/4):
			e = Event{Kind: processReplaced, Name: name, Late: s.shortly()}
		default:
			continue
		}
		if err := s.do(e); err != nil {
			return err
		}
	}
	return nil
}

// shortly returns a time of up to three seconds.
func (s *Simulation) shortly() time.Duration {
	return time.Duration(s.faults.IntN(3_000_000)) * time.Microsecond
}

// changeHardware lets GPUs, their driver or VFs vanish or come back.
func (s *Simulation) changeHardware() error {
	if !s.strikes(chanceOfHardware) {
		return nil
	}
	change, any := s.hardware.Draw(s.faults)
	if !any {
		return nil
	}
	return s.do(Event{Kind: machineChanges, What: string(change.What), Of: change.Of})
}

// disturbKubelet restarts the kubelet, with or without its checkpoint.
func (s *Simulation) disturbKubelet() error {
	switch {
	case s.strikes(chanceOfKubeletStop):
		return s.do(Event{Kind: kubeletRestarts})
	case s.strikes(chanceOfWipe):
		return s.do(Event{Kind: kubeletWiped})
	default:
		return nil
	}
}

// aim draws the faults of the calls during a pod's admission.
func (s *Simulation) aim(p *model.Pod) error {
	for _, c := range p.Containers {
		for _, resource := range slices.Sorted(maps.Keys(c.Requests)) {
			allocate := "Allocated"
			if resource == model.VFs && s.faults.IntN(3) == 0 {
				allocate = "Pair"
			}
			for _, method := range []string{"Prefer", allocate} {
				if !s.strikes(chanceOfCallFault) {
					continue
				}
				e, err := s.drawCall()
				if err != nil {
					return err
				}
				e.Name, e.Resource, e.Method = c.Name, resource, method
				if err := s.do(e); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// drawCall draws a fault of a call.
func (s *Simulation) drawCall() (e Event, err error) {
	kind := callFaults[s.faults.IntN(len(callFaults))]
	e = Event{Kind: callFails, What: string(kind)}
	switch kind {
	case lateQuestion, lateAnswer:
		e.Late = time.Duration(1+s.faults.IntN(120_000)) * time.Microsecond
	case killBefore, killAfter:
		e.Leaves, err = s.drawDamage()
	default:
	}
	return e, err
}

// settle ends the storm, and admits pods until all promises hold.
func (s *Simulation) settle() error {
	if err := s.do(Event{Kind: stormEnds}); err != nil {
		return err
	}
	for _, name := range s.names() {
		if s.process(name) == nil {
			if err := s.do(Event{Kind: processStarts, Name: name, After: s.shortly() / 3}); err != nil {
				return err
			}
		}
	}
	if err := s.do(Event{Kind: calmBegins}); err != nil {
		return err
	}
	for !s.settled() && s.broken == "" {
		if s.random.IntN(2) == 0 {
			if err := s.endSome(); err != nil {
				return err
			}
		}
		if err := s.admit(); err != nil {
			return err
		}
	}
	return nil
}
