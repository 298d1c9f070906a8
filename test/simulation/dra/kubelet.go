// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
)

// callLimit is the kubelet's limit for a call (pkg/kubelet/cm/dra/plugin).
const callLimit = 45 * time.Second

// wipeDelay is the time without a driver after which the kubelet deletes its slices.
const wipeDelay = 30 * time.Second

var errNoDriver = errors.New("no driver is registered")

// register registers processes that the kubelet does not know.
func (s *Simulation) register() {
	for _, p := range slices.Clone(s.processes) {
		if p.lives() && !p.known && p.listens() {
			err := s.tell(p)
			s.trace("the kubelet registers %s: %v", p.uid, err)
			p.known = err == nil
		}
	}
	switch {
	case s.driver() != nil:
		s.absent = time.Time{}
	case s.absent.IsZero():
		s.absent = time.Now()
	case time.Since(s.absent) > wipeDelay:
		s.wipe()
	}
}

// tell makes the calls of a registration.
func (s *Simulation) tell(p *process) error {
	registrar, _, err := p.dial()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	client := registerapi.NewRegistrationClient(registrar)
	info, err := client.GetInfo(ctx, &registerapi.InfoRequest{})
	if err == nil && (info.GetName() != pool.Driver || info.GetType() != registerapi.DRAPlugin) {
		s.wrong(brokenContract, "the driver registers as %v", info)
	}
	if err == nil {
		_, err = client.NotifyRegistrationStatus(ctx, &registerapi.RegistrationStatus{PluginRegistered: true})
	}
	if err != nil {
		return fmt.Errorf("register %s: %w", p.uid, err)
	}
	return nil
}

// driver returns the process that the kubelet calls: the newest that is registered; nil for none.
func (s *Simulation) driver() *process {
	for _, p := range slices.Backward(s.processes) {
		if p.known && p.lives() {
			return p
		}
	}
	return nil
}

// work prepares and unprepares the claims of all pods that wait for it.
func (s *Simulation) work() {
	for _, p := range slices.Clone(s.pods) {
		if s.broken != "" {
			return
		}
		switch {
		case p.forgotten:
		case p.ending:
			s.unprepare(p)
		default:
			_ = s.prepare(p)
		}
	}
}

// prepare prepares the claims of a pod.
func (s *Simulation) prepare(p *pod) error {
	var due []*claim
	for _, c := range p.claims {
		if !c.prepared {
			due = append(due, c)
		}
	}
	if len(due) == 0 {
		return nil
	}
	if twin := s.twin(due); twin != nil {
		s.trace("%s waits for the end of claim %s", p, twin)
		return nil
	}
	request := &drapb.NodePrepareResourcesRequest{}
	for _, c := range due {
		request.Claims = append(request.Claims, c.question())
	}
	failures := ""
	err := s.call("Prepare", func(ctx context.Context, client drapb.DRAPluginClient) error {
		answer, err := client.NodePrepareResources(ctx, request)
		if err == nil {
			failures = s.answered(due, answer)
		}
		return err
	})
	if err == nil && failures != "" {
		err = errors.New(failures)
	}
	s.trace("%s prepares %v: %s", p, due, s.outcome(err))
	return err
}

// question names the claim to the driver.
func (c *claim) question() *drapb.Claim {
	return &drapb.Claim{Namespace: namespace, Name: c.name, Uid: string(c.uid)}
}

// outcome returns the result of a call for people, without the directory of the node. Both sides of a
// connection notice the end of a call's time, and either may be the first to say so.
func (n *Node) outcome(err error) string {
	switch code := status.Code(err); code {
	case codes.OK:
		return "success"
	case codes.DeadlineExceeded:
		return code.String()
	}
	return strings.ReplaceAll(err.Error(), n.dir, "")
}

// answered records the answer of Prepare, and returns the errors of claims.
func (s *Simulation) answered(due []*claim, answer *drapb.NodePrepareResourcesResponse) string {
	if s.deaf {
		return ""
	}
	var failures []string
	drains := s.driver() != nil && s.driver().drains
	for _, c := range due {
		one := answer.GetClaims()[string(c.uid)]
		if one == nil {
			s.wrong(brokenContract, "the answer lacks claim %s", c)
			continue
		}
		if one.GetError() != "" {
			failures = append(failures, one.GetError())
			continue
		}
		if drains {
			s.wrong(drained, "%s", c)
		}
		names := []string{}
		for _, s := range c.shares {
			s.cdi = nil
		}
		for _, device := range one.GetDevices() {
			names = append(names, device.GetCdiDeviceIds()...)
			for _, s := range c.shares {
				if slices.Contains(device.GetRequestNames(), s.request) {
					s.cdi = append(s.cdi, device.GetCdiDeviceIds()...)
				}
			}
		}
		if c.answered != nil && !slices.Equal(c.answered, names) {
			s.wrong(otherAnswer, "%s: %v, then %v", c, c.answered, names)
		}
		c.answered, c.prepared, c.restored = names, true, true
		s.checkFiles(c)
	}
	return strings.Join(slices.Compact(failures), "; ")
}

// twin returns a claim with the name of another one that the kubelet still knows: it is prepared after the
// end of the other.
func (s *Simulation) twin(due []*claim) *claim {
	for _, p := range s.pods {
		for _, c := range p.claims {
			same := func(d *claim) bool { return d.name == c.name && d.uid != c.uid }
			if !p.forgotten && slices.ContainsFunc(due, same) && (c.prepared || c.holds()) {
				return c
			}
		}
	}
	return nil
}

// unprepare unprepares the claims of a pod that no other pod has, and forgets the pod after the success.
func (s *Simulation) unprepare(p *pod) {
	request := &drapb.NodeUnprepareResourcesRequest{}
	var due []*claim
	for _, c := range p.claims {
		if c.freed || s.isNeeded(c, p) {
			continue
		}
		due = append(due, c)
		request.Claims = append(request.Claims, c.question())
	}
	var err error
	if len(due) > 0 {
		if s.driver() != nil {
			for _, c := range due {
				c.released, c.prepared = true, false
			}
		}
		err = s.call("Unprepare", func(ctx context.Context, client drapb.DRAPluginClient) error {
			answer, err := client.NodeUnprepareResources(ctx, request)
			if err == nil {
				err = s.freed(due, answer)
			}
			return err
		})
		s.trace("%s unprepares %v: %s", p, due, s.outcome(err))
	}
	if err != nil {
		s.checkUnprepare(p, err)
		return
	}
	if !p.deleted {
		s.remove(p)
	}
	s.pods = slices.DeleteFunc(s.pods, func(o *pod) bool { return o == p })
}

// forget makes the kubelet forget a pod and the claims that no other pod has.
func (s *Simulation) forget(p *pod) {
	p.forgotten = true
	for _, c := range p.claims {
		if !s.isNeeded(c, p) {
			c.released, c.prepared = true, false
		}
	}
}

// freed records the answer of Unprepare.
func (s *Simulation) freed(due []*claim, answer *drapb.NodeUnprepareResourcesResponse) error {
	for _, c := range due {
		one := answer.GetClaims()[string(c.uid)]
		if one == nil {
			s.wrong(brokenContract, "the answer lacks claim %s", c)
			continue
		}
		if one.GetError() != "" {
			return errors.New(one.GetError())
		}
	}
	for _, c := range due {
		c.freed = !s.deaf
	}
	return nil
}

// isNeeded reports whether another pod of the kubelet has a claim.
func (s *Simulation) isNeeded(c *claim, by *pod) bool {
	return slices.ContainsFunc(s.pods, func(p *pod) bool {
		return p != by && !p.forgotten && slices.Contains(p.claims, c)
	})
}

// restartKubelet starts the kubelet anew: it deletes the slices, registers drivers again, and prepares the
// claims of all pods again.
func (s *Simulation) restartKubelet() {
	s.wipe()
	for _, p := range s.processes {
		p.known = false
	}
	for _, p := range s.pods {
		for _, c := range p.claims {
			c.prepared = false
		}
	}
}

// call makes a call of the driver, in a storm with a fault.
func (s *Simulation) call(what string, do func(context.Context, drapb.DRAPluginClient) error) error {
	p := s.driver()
	if p == nil {
		return errNoDriver
	}
	_, conn, err := p.dial()
	if err != nil {
		return err
	}
	client := drapb.NewDRAPluginClient(conn)
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	began := time.Now()
	err = s.fail(ctx, p, func(ctx context.Context) error { return do(ctx, client) })
	synctest.Wait()
	if took := time.Since(began); took > time.Second {
		s.trace("%s takes %s", what, took)
	}
	s.disk.Restart()
	p.aim.Store(nil)
	if failed := s.reap(); failed != nil {
		s.checkAlive(failed)
	}
	return err
}
