// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"strings"
	"testing/synctest"
	"time"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/bounded"
	"github.com/tandem-k8s/tandem/test/model"
	"github.com/tandem-k8s/tandem/test/simulation/seeds"
)

// Prefer asks a plugin, in a storm under faults.
func (s *Simulation) Prefer(p *model.Pod, c *model.Container, q model.Question) []string {
	s.asked++
	end := s.endpoints.newest(q.Resource)
	if end == nil {
		s.trace("no plugin of %s is registered", q.Resource)
		return nil
	}
	s.remember()
	s.aim(end, "Prefer")
	began := time.Now()
	ids, err := end.prefer(q)
	took := time.Since(began)
	s.disarm(end)
	synctest.Wait()
	if err != nil {
		s.trace("%s/%s asks for %d %s: %v", p.Name, c.Name, q.Size, q.Resource, err)
		return nil
	}
	s.trace("%s/%s asks for %d of %d %s: %s, after %s", p.Name, c.Name, q.Size, len(q.Available), q.Resource,
		strings.Join(ids, " "), took)
	s.checkAnswer(q, ids)
	if took > bounded.Question {
		s.wrong(tooLate, "%s/%s waited %s for its preferred %s", p.Name, c.Name, took, q.Resource)
	}
	s.checkAlone()
	return ids
}

// Allocate allocates devices at a plugin, in a storm under faults.
func (s *Simulation) Allocate(p *model.Pod, c *model.Container, resource string, ids []string) bool {
	end := s.endpoints.newest(resource)
	if end == nil {
		s.trace("no plugin of %s is registered", resource)
		return false
	}
	seeds.Sleep(asking.FollowWindow / 4)
	method := "Allocated"
	if resource == model.VFs && s.faults.IntN(3) == 0 {
		method = "Pair"
	}
	s.remember()
	s.aim(end, method)
	began := time.Now()
	answer, err := end.allocate(ids)
	if took := time.Since(began); took > 0 {
		s.trace("Allocate takes %s", took)
	}
	s.disarm(end)
	synctest.Wait()
	seeds.Sleep(asking.FollowWindow / 4)
	s.checkAlone()
	if err != nil {
		s.trace("%s/%s is refused %s: %v", p.Name, c.Name, resource, err)
		s.checkRefusal(p, c, resource, ids, err)
		return false
	}
	s.trace("%s/%s gets %s %s", p.Name, c.Name, resource, strings.Join(ids, " "))
	s.checkEnvironment(p, c, resource, ids, answer)
	if err := keep(c, resource, answer); err != nil {
		s.wrong(brokenContract, "%v", err)
	}
	return true
}

// aim arms a fault of the plugin's next call, by chance.
func (s *Simulation) aim(end *endpoint, method string) {
	if !s.strikes(chanceOfCallFault) {
		return
	}
	f := &fault{kind: callFaults[s.faults.IntN(len(callFaults))], method: method}
	f.late = time.Duration(1+s.faults.IntN(120_000)) * time.Microsecond
	server := s.server()
	f.strike = func() {
		if server != nil {
			s.killed(server)
		}
	}
	s.note(string(f.kind))
	end.owner.socket.arm(f)
}

// disarm removes a fault that did not happen.
func (s *Simulation) disarm(end *endpoint) { end.owner.socket.arm(nil) }
