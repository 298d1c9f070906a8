// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/model"
	"github.com/tandem-k8s/tandem/test/simulation/seeds"
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

// rage begins a storm.
func (s *Simulation) rage() {
	s.trace("a storm begins")
	s.raging, s.kubelet.Trouble = true, model.Trouble{Fail: 0.1, Change: 0.1, End: 0.1}
}

// strike lets faults between two admissions happen.
func (s *Simulation) strike() error {
	if s.strikes(chanceOfReadFault) {
		if what := s.records.disturb(s.faults); what != "" {
			s.note(what)
		}
	}
	if s.strikes(chanceOfPartition) {
		s.note("the plugins lose each other")
		s.network.block(true)
	} else if s.strikes(chanceOfReturn) {
		s.network.block(false)
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
	p := s.processes[s.faults.IntN(len(s.processes))]
	if s.faults.IntN(3) > 0 {
		s.note("a plugin is killed")
		s.killed(p)
		return s.bury()
	}
	s.note("a plugin ends")
	s.trace("%s ends", p.name)
	return s.finish(p)
}

// killed kills a process. Processes that are killed amid a call end after the call.
func (s *Simulation) killed(p *process) {
	role := p.member.Role()
	s.trace("%s, %s, is killed", p.name, role)
	damage := func() error { return s.damage(role == coordination.Serves) }
	if err := p.kill(damage); err != nil {
		s.wrong(brokenContract, "kill %s: %v", p.name, err)
	}
}

// reviveSome starts processes that have died, or a second instance of one before the first ends.
func (s *Simulation) reviveSome() error {
	for _, name := range s.names() {
		first := s.process(name)
		switch {
		case first == nil && s.strikes(chanceOfReturn):
			s.trace("%s starts", name)
			seeds.Sleep(time.Duration(s.faults.IntN(3_000_000)) * time.Microsecond)
			if err := s.begin(name); err != nil {
				return err
			}
		case first != nil && s.strikes(chanceOfDeath/4):
			s.note("a plugin is replaced while it runs")
			if err := s.begin(name); err != nil {
				return err
			}
			seeds.Sleep(time.Duration(s.faults.IntN(3_000_000)) * time.Microsecond)
			if err := s.finish(first); err != nil {
				return err
			}
		}
	}
	return nil
}

// changeHardware lets GPUs, their driver or VFs vanish or come back.
func (s *Simulation) changeHardware() error {
	if !s.strikes(chanceOfHardware) {
		return nil
	}
	what, err := s.hardware.Disturb(s.faults)
	if what != "" {
		s.note(what)
	}
	return err
}

// disturbKubelet restarts the kubelet, with or without its checkpoint.
func (s *Simulation) disturbKubelet() error {
	switch {
	case s.strikes(chanceOfKubeletStop):
		s.note("the kubelet starts anew")
		s.kubelet.Restart()
	case s.strikes(chanceOfWipe):
		s.note("the kubelet's checkpoint is wiped")
		if err := s.kubelet.Wipe(); err != nil {
			return err
		}
	default:
		return nil
	}
	s.reconnect()
	return nil
}

// reconnect ends all connections of a kubelet that restarts. The plugins register again.
func (s *Simulation) reconnect() {
	s.endpoints.closeStreams()
	for _, resource := range []string{model.GPUs, model.VFs} {
		s.kubelet.Devices[resource] = []device.Device{}
		delete(s.sent, resource)
	}
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

// recovery is the time after which all parts work again: a source of requests is asked again after a minute
// at the latest.
const recovery = 65 * time.Second

// settle ends the storm, and admits pods that nobody judges until the kubelet has asked twice: the
// coordinator has then read all sources.
func (s *Simulation) settle() error {
	s.trace("the storm ends")
	s.raging, s.kubelet.Trouble = false, model.Trouble{}
	s.records.heal()
	s.network.block(false)
	s.hardware.Heal()
	if err := s.bury(); err != nil {
		return err
	}
	for _, name := range s.names() {
		if s.process(name) == nil {
			s.trace("%s starts", name)
			if err := s.begin(name); err != nil {
				return err
			}
			seeds.Sleep(time.Duration(s.faults.IntN(1_000_000)) * time.Microsecond)
		}
	}
	for !s.kubelet.Ready() {
		s.kubelet.Return()
	}
	s.endTwins()
	seeds.Sleep(recovery)
	for before := s.asked; s.asked < before+2 && s.broken == ""; {
		if pods := s.kubelet.Pods(); s.random.IntN(2) == 0 && len(pods) > 0 {
			s.end(pods[s.random.IntN(len(pods))])
		}
		if err := s.sync(); err != nil {
			return err
		}
		if err := s.admit(); err != nil {
			return err
		}
	}
	return nil
}
