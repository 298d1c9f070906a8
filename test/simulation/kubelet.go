// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/system"
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
	f := s.arm(end, c, q.Resource, "Prefer")
	began := time.Now()
	ids, err := end.prefer(q)
	took := time.Since(began)
	s.disarm(end, f)
	if err != nil {
		s.trace("%s/%s asks for %d %s: %v", p.Name, c.Name, q.Size, q.Resource, err)
		return nil
	}
	s.trace("%s/%s asks for %d of %d %s: %s, after %s", p.Name, c.Name, q.Size, len(q.Available), q.Resource,
		strings.Join(ids, " "), took)
	s.checkAnswer(q, ids)
	s.checkLost(q, ids)
	if took > system.QuestionLimit {
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
	seeds.Sleep(admission.FollowWindow / 4)
	s.remember()
	f := s.arm(end, c, resource, "Allocated", "Pair")
	s.vanish(resource, ids)
	end.owner.socket.takeRecipient() // of an earlier Allocate
	began := time.Now()
	answer, err := end.allocate(ids)
	if took := time.Since(began); took > 0 {
		s.trace("Allocate takes %s", took)
	}
	s.disarm(end, f)
	seeds.Sleep(admission.FollowWindow / 4)
	s.checkAlone()
	if err != nil {
		why := strings.ReplaceAll(err.Error(), s.dir, "")
		s.trace("%s/%s is refused %s: %s", p.Name, c.Name, resource, why)
		s.checkRefusal(p, c, resource, ids, err)
		return false
	}
	s.trace("%s/%s gets %s %s", p.Name, c.Name, resource, strings.Join(ids, " "))
	s.checkRecipient(p, c, ids, end.owner.socket.takeRecipient())
	s.checkEnvironment(p, c, resource, ids, answer)
	s.checkNodes(p, c, resource, ids, answer)
	if err := keep(c, resource, answer); err != nil {
		s.wrong(brokenContract, "%v", err)
	}
	return true
}

// arm arms the fault of a call of the plugin, nil if none is expected.
func (s *Simulation) arm(end *endpoint, c *model.Container, resource string, methods ...string) *fault {
	for _, e := range s.expected {
		if e.Name != c.Name || e.Resource != resource || !slices.Contains(methods, e.Method) {
			continue
		}
		f := &fault{kind: callFault(e.What), method: e.Method, late: e.Late}
		server := s.server()
		f.strike = func() {
			if server != nil {
				s.killed(server, e.Leaves)
			}
		}
		s.calm = false
		s.trace("fault: %s", e.What)
		end.owner.socket.arm(f)
		return f
	}
	return nil
}

// disarm removes a fault that did not happen, and counts one that did. What a call that the plugin has given
// up still does, such as a strike, ends first.
func (s *Simulation) disarm(end *endpoint, f *fault) {
	end.owner.socket.arm(nil)
	synctest.Wait()
	if f != nil && f.taken {
		s.happened[string(f.kind)]++
	}
}

// killed kills a process. Processes that are killed amid a call end after the call.
func (s *Simulation) killed(p *process, leaves string) {
	role := p.member.Role()
	s.trace("%s, %s, is killed", p.name, role)
	damage := func() error { return s.damage(role == coordination.Serves, leaves) }
	if err := p.kill(damage); err != nil {
		s.wrong(brokenContract, "kill %s: %v", p.name, err)
	}
}
