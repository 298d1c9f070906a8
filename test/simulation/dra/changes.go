// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"slices"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/test/apiserver"
	"github.com/tandem-k8s/tandem/test/simulation/seeds"
)

// Times of the driver after a change of the feature gates: gatesPause of package dra is the time between two
// looks. A gate that was lost counts as on with the first look after lossPause of package dra.
const (
	gatesPause = 10*time.Minute + 10*time.Second
	lossPause  = time.Hour
)

// turn lets the node go back to device plugins for a cycle, by chance, and return to the driver.
func (s *Simulation) turn() error {
	drains := !s.draining && s.random.IntN(8) == 0
	if drains == s.draining {
		return nil
	}
	s.draining = drains
	s.happened["the node drains"] += map[bool]int{true: 1}[drains]
	s.trace("the node drains: %t", drains)
	waiting := s.arrive(s.random) // not prepared by the processes before
	s.bury()
	if err := s.finishAll(s.finish); err != nil {
		return err
	}
	if err := s.begin(); err != nil {
		return err
	}
	s.register()
	if waiting != nil {
		s.trace("%s arrives", waiting)
		_ = s.prepare(waiting)
	}
	seeds.Sleep(recovery)
	return nil
}

// switchGates switches a feature gate of the API server in a storm.
func (s *Simulation) switchGates() error {
	if s.strikes(chanceOfGates) {
		s.switchGate()
	}
	return nil
}

// switchGate switches a feature gate of the API server, as a new configuration does.
func (s *Simulation) switchGate() {
	s.note("a feature gate of the API server changes")
	counters := s.faults.IntN(2) == 0
	after := s.server.Features()
	lost := counters && after.Counters || !counters && after.Taints
	if counters {
		after.Counters = !after.Counters
	} else {
		after.Taints = !after.Taints
	}
	s.server.SetFeatures(after)
	s.trace("the gates are {counters:%t taints:%t}", after.Counters, after.Taints)
	s.switched = true
	if lost {
		for _, p := range s.processes {
			p.lost = true
		}
	}
}

// compactSometimes makes the API server forget earlier changes: watches end with the status 410, and the
// driver lists again after a random pause. Nothing else may depend on that pause, hence the wait.
func (s *Simulation) compactSometimes() error {
	if !s.strikes(chanceOfCompact) {
		return nil
	}
	s.note("the API server forgets the versions of watches")
	s.server.Heal()
	s.server.Compact()
	seeds.Sleep(recovery)
	return nil
}

// awaitGates waits until the driver knows the feature gates, and by chance switches another one before.
func (s *Simulation) awaitGates() {
	switched := s.switched || s.faults.IntN(4) == 0
	if newest := s.newest(); switched && newest != nil && !s.draining {
		seeds.Sleep(recovery)
		s.register()
		s.outlastGates(newest)
	}
	s.switched = false
}

// outlastGates lets a pod arrive before the driver knows the feature gates. The pod gets its devices,
// although they may be published in another form afterwards. The driver hears of lost fields with the next
// write of its slices, which somebody deletes for that.
func (s *Simulation) outlastGates(newest *process) {
	waiting := s.arrive(s.random)
	if s.faults.IntN(2) == 0 {
		s.switchGate()
	}
	s.wipe()
	seeds.Sleep(recovery)
	s.checkShared()
	seeds.Sleep(2 * gatesPause)
	if newest.lost {
		seeds.Sleep(lossPause)
	}
	s.checkBuilt()
	if waiting == nil {
		return
	}
	s.trace("%s arrives", waiting)
	if err := s.prepare(waiting); err != nil && strings.Contains(err.Error(), "no such device") {
		s.wrong(refused, "%s after a change of feature gates: %v", waiting, err)
	}
}

// loseClaim deletes a prepared claim by force, and not its pod, which continues with its devices.
func (s *Simulation) loseClaim() error {
	if !s.strikes(chanceOfLostClaim) {
		return nil
	}
	for _, p := range s.living() {
		c := p.claims[0]
		if !c.prepared || !c.holds() || p.deleted || c.lost {
			continue
		}
		s.note("a claim is deleted by force")
		s.trace("%s is deleted", c)
		c.lost = true
		apiserver.Remove[*resourceapi.ResourceClaim](s.server, namespace, c.name)
		return nil
	}
	return nil
}

// awaitCollector gives the driver the time to find that claims are gone: they stay prepared, as their pods
// run.
func (s *Simulation) awaitCollector() {
	if !slices.ContainsFunc(s.held(), func(c *claim) bool { return c.lost }) {
		return
	}
	s.work() // nobody needs the claims of pods that end
	seeds.Sleep(statusPause + orphanPatience)
	s.checkAlways()
}

// orphanPatience is the time until the driver unprepares a claim that is gone: orphanPatience of package dra,
// and two of its pauses.
const orphanPatience = 4 * time.Minute
