// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing/synctest"
	"time"

	"github.com/tandem-k8s/tandem/plugins/dra/claims"
	"github.com/tandem-k8s/tandem/test/disk"
	"github.com/tandem-k8s/tandem/test/simulation/seeds"
	"github.com/tandem-k8s/tandem/topology"
)

// Chances of faults during a storm, for each call or step.
const (
	chanceOfCallFault = 0.4
	chanceOfServer    = 0.2
	chanceOfReturn    = 0.4
	chanceOfRecords   = 0.1
	chanceOfDeath     = 0.06
	chanceOfStart     = 0.6
	chanceOfReplaced  = 0.06
	chanceOfPower     = 0.02
	chanceOfHardware  = 0.08
	chanceOfKubelet   = 0.05
	chanceOfForce     = 0.3
	chanceOfForgotten = 0.15
	chanceOfLostFile  = 0.05
	chanceOfOldEnd    = 0.05
	chanceOfGates     = 0.02
	chanceOfCompact   = 0.02
	chanceOfLostClaim = 0.03
)

// strikes reports whether a fault happens.
func (s *Simulation) strikes(chance float64) bool { return s.raging && s.faults.Float64() < chance }

// callFault is a kind of fault of a call.
type callFault string

// Kinds of faults of calls.
const (
	lostQuestion callFault = "a question to the driver is lost"
	lostAnswer   callFault = "an answer of the driver is lost"
	doubled      callFault = "a question to the driver comes twice"
	givenUp      callFault = "the kubelet gives a call up"
	killBefore   callFault = "the driver is killed before it has a question"
	killAfter    callFault = "the driver is killed before its answer arrives"
	killRequest  callFault = "the driver is killed at a request to the API server"
	diskFault    callFault = "a step on the disk fails, or kills the driver"
)

var callFaults = []callFault{
	lostQuestion, lostAnswer, doubled, givenUp, killBefore, killAfter, killRequest,
	diskFault, diskFault, diskFault,
}

var errLost = errors.New("the answer is lost")

// fail makes a call, by chance with a fault.
func (s *Simulation) fail(ctx context.Context, p *process, ask func(context.Context) error) error {
	if !s.strikes(chanceOfCallFault) {
		return ask(ctx)
	}
	fault := callFaults[s.faults.IntN(len(callFaults))]
	s.note(string(fault))
	switch fault {
	case lostQuestion:
		return errLost
	case doubled:
		_ = ask(ctx)
	case givenUp:
		short, cancel := context.WithTimeout(ctx, time.Duration(s.faults.IntN(8_000))*time.Microsecond)
		defer cancel()
		return ask(short)
	case killBefore:
		p.kill()
		synctest.Wait()
	case killRequest:
		p.aim.Store(&aim{kinds[s.faults.IntN(len(kinds))], s.faults.IntN(2) == 0})
	case diskFault:
		s.disk.At(1+s.faults.IntN(30), disk.Faults[s.faults.IntN(len(disk.Faults))])
		defer func() {
			synctest.Wait()
			if struck := s.disk.Struck(); struck != disk.Nothing {
				s.happened["a step on the disk: "+struck.String()]++
			}
		}()
	case lostAnswer, killAfter:
		s.deaf = true
		defer func() { s.deaf = false }()
		_ = ask(ctx)
		if fault == killAfter {
			p.kill()
			synctest.Wait()
		}
		return errLost
	}
	return ask(ctx)
}

// rage begins a storm.
func (s *Simulation) rage() {
	s.trace("a storm begins")
	s.raging = true
}

// strike lets faults between two calls happen.
func (s *Simulation) strike() error {
	s.disturbServer()
	if s.strikes(chanceOfRecords) {
		s.note("the kubelet's records change")
		s.old.disturb(s.faults.IntN(2) == 0, time.Duration(s.faults.IntN(7_000))*time.Millisecond)
	}
	if s.strikes(chanceOfOldEnd) {
		if name := s.old.end(); name != "" {
			s.trace("%s ends", name)
		}
	}
	for _, happen := range []func() error{
		s.killSome, s.reviveSome, s.changeHardware, s.losePowerSometimes, s.loseFile, s.switchGates,
		s.compactSometimes, s.loseClaim,
	} {
		if err := happen(); err != nil {
			return err
		}
	}
	if s.strikes(chanceOfKubelet) {
		s.note("the kubelet starts anew")
		s.restartKubelet()
	}
	return nil
}

// shortWatch is the age of a watch from which client-go repeats it at once: the pause after the end of a
// younger watch is random.
const shortWatch = 2 * time.Second

// disturbServer begins or ends a trouble of the API server.
func (s *Simulation) disturbServer() {
	switch {
	case s.strikes(chanceOfReturn):
		s.server.Heal()
	case !s.strikes(chanceOfServer):
	default:
		switch s.faults.IntN(4) {
		case 0:
			s.note("the API server is away")
			s.server.Leave()
		case 1:
			s.note("the API server does not answer")
			s.server.FallSilent()
		case 2:
			s.note("watches are late")
			s.server.FallBehind()
		default:
			s.note("watches are cut")
			s.server.Cut(shortWatch)
		}
	}
}

// killSome kills a process, or stops one in order.
func (s *Simulation) killSome() error {
	if !s.strikes(chanceOfDeath) || len(s.processes) == 0 {
		return nil
	}
	p := s.processes[s.faults.IntN(len(s.processes))]
	if s.faults.IntN(3) == 0 {
		s.note("the driver ends")
		return s.finish(p)
	}
	s.note("the driver is killed")
	s.trace("%s is killed", p.uid)
	p.kill()
	_ = s.reap()
	return nil
}

// reviveSome starts a process if none runs, by chance with a fault of the disk, or a second one.
func (s *Simulation) reviveSome() error {
	switch first := s.newest(); {
	case first == nil && s.strikes(chanceOfStart):
		if s.strikes(chanceOfCallFault) {
			s.note("a step on the disk fails, or kills the driver, at its start")
			s.disk.At(1+s.faults.IntN(20), disk.Faults[s.faults.IntN(len(disk.Faults))])
		}
		err := s.begin()
		s.disk.Restart()
		return err
	case first != nil && s.options.Rolling && s.strikes(chanceOfReplaced):
		s.note("the driver is replaced while it runs")
		if err := s.begin(); err != nil {
			return err
		}
		seeds.Sleep(time.Duration(s.faults.IntN(20_000)) * time.Millisecond)
		if first.lives() && s.faults.IntN(2) == 0 {
			return s.finish(first)
		}
	}
	return nil
}

// begin starts a process, and waits until it serves if nothing hinders it.
func (s *Simulation) begin() error {
	p, err := s.start()
	if err != nil {
		return err
	}
	s.trace("%s starts", p.uid)
	seeds.Sleep(time.Second + time.Duration(s.faults.IntN(1_000_000))*time.Microsecond)
	if failed := s.reap(); failed != nil {
		s.checkAlive(failed)
	}
	return nil
}

func (s *Simulation) changeHardware() error {
	if !s.strikes(chanceOfHardware) {
		return nil
	}
	what, err := s.hardware.Disturb(s.faults)
	if what != "" {
		s.note(what)
	}
	s.expectNoSpecs()
	seeds.Sleep(writing)
	if _, isLoaded := s.hardware.GPUs(); isLoaded && s.newest() != nil && !s.draining {
		seeds.Sleep(repairing)
		s.checkGone()
	}
	return err
}

// losePowerSometimes ends and starts the machine in a storm.
func (s *Simulation) losePowerSometimes() error {
	if !s.strikes(chanceOfPower) {
		return nil
	}
	s.note("the machine loses power")
	return s.losePower()
}

// losePower ends and starts the machine, and the kubelet: all claims are prepared again.
func (s *Simulation) losePower() error {
	if err := s.Node.losePower(); err != nil {
		return err
	}
	for _, p := range s.pods {
		for _, c := range p.claims {
			c.restored = false
		}
	}
	s.restartKubelet()
	return nil
}

// loseFile removes a CDI spec of a claim: somebody tidies up.
func (s *Simulation) loseFile() error {
	if !s.strikes(chanceOfLostFile) {
		return nil
	}
	s.disk.Settle()
	files, err := filepath.Glob(filepath.Join(s.cdiDir(), "tandem.dev-*"))
	if err != nil || len(files) == 0 {
		return err
	}
	slices.Sort(files)
	file := files[s.faults.IntN(len(files))]
	s.note("a CDI spec is lost")
	s.trace("%s is lost", filepath.Base(file))
	for _, p := range s.pods {
		for _, c := range p.claims {
			if s.specPath(c) == file {
				c.restored = false
			}
		}
	}
	err = os.Remove(file)
	seeds.Sleep(repairing)
	return err
}

// Times of a calm: until the files, the published data and the kubelet's records are up to date; and until
// claims that nobody knows are released.
const (
	recovery = 65 * time.Second
	look     = 25 * time.Second // of two looks at the kubelet's records
	writing  = time.Second      // of the slices after a change
	// repairing is the time of a repair of the files. A fault of the disk is planned for a call: no repair may
	// make steps of its own during a call, because the order of both is random.
	repairing = 11 * time.Second
	patience  = 30 * time.Minute
)

// settle ends the storm, and waits until all parts work again.
func (s *Simulation) settle() error {
	s.trace("the storm ends")
	s.raging = false
	s.server.Heal()
	s.old.disturb(false, 0)
	s.hardware.Heal()
	if !s.options.PodsAPI { // such a kubelet names pods to nobody that have ended before the driver started
		if err := s.old.write(); err != nil {
			return err
		}
	}
	if err := s.settleProcesses(); err != nil {
		return err
	}
	s.awaitGates()
	seeds.Sleep(recovery)
	s.register()
	s.awaitCollector()
	s.settleClaims()
	for began := time.Now(); s.orphaned() && time.Since(began) < patience; {
		seeds.Sleep(time.Minute)
	}
	s.pods = slices.DeleteFunc(s.pods, func(p *pod) bool { return p.forgotten })
	s.settleClaims()
	seeds.Sleep(recovery)
	return nil
}

// settleProcesses leaves one process: the newest, or by chance a new one.
func (s *Simulation) settleProcesses() error {
	s.bury()
	newest, anew := s.newest(), s.faults.IntN(2) == 0 && !s.switched
	for _, p := range slices.Clone(s.processes) {
		if p == newest && !anew {
			continue
		}
		if err := s.finish(p); err != nil {
			return fmt.Errorf("end the storm: %w", err)
		}
	}
	if len(s.processes) > 0 {
		return nil
	}
	return s.begin()
}

// settleClaims lets the kubelet work off all pods, and ends pods whose devices are gone, or are devices of
// another claim: the scheduler knows nothing of the parts of a device that is not published at the moment,
// and allocates the parts again.
func (s *Simulation) settleClaims() {
	for range 3 {
		s.register()
		s.work()
		seeds.Sleep(5 * time.Second)
	}
	usable := map[string]bool{}
	for _, slice := range s.published() {
		for _, device := range slice.Spec.Devices {
			usable[device.Name] = len(device.Taints) == 0
		}
	}
	known, present := s.known(), s.hardware.Present()
	for _, p := range s.pods {
		isOver := func(c *claim) bool {
			return c.lost || !allIn(c.devices, usable) || isGone(c, known, present) || !c.prepared && isTaken(c, known)
		}
		if slices.ContainsFunc(p.claims, isOver) {
			s.trace("%s ends: its devices are gone", p)
			p.ending = true
		}
	}
	s.work()
}

// isTaken reports whether a part of a claim's devices is prepared for another claim.
func isTaken(c *claim, known []claims.Claim) bool {
	for _, k := range known {
		for _, d := range k.Devices {
			for _, id := range append(slices.Concat(d.GPUs, d.VFs), d.Token) {
				if k.UID != c.uid && id != "" && slices.Contains(c.ids, id) {
					return true
				}
			}
		}
	}
	return false
}

// isGone reports whether the machine lacks a part of what a claim was given: another VF than the allocated
// one, or a VF with a GPU.
func isGone(c *claim, known []claims.Claim, present *topology.Tree) bool {
	i := slices.IndexFunc(known, func(k claims.Claim) bool { return k.UID == c.uid })
	if i < 0 {
		return false
	}
	for _, d := range known[i].Devices {
		for _, id := range slices.Concat(d.GPUs, d.VFs) {
			address, err := topology.ParseAddress(id)
			if _, there := present.Device(address); err == nil && !there {
				return true
			}
		}
	}
	return false
}

func allIn(names []string, set map[string]bool) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return !set[name] })
}
