// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/model"
	"github.com/tandem-k8s/tandem/test/simulation/hardware"
	"github.com/tandem-k8s/tandem/test/simulation/seeds"
)

// bootWithFiles starts the machine again, whose run folder is on a disk.
func (s *Simulation) bootWithFiles() error { return s.startAgain(func() error { return nil }) }

// bootWithoutFiles starts the machine again, whose run folder is in memory.
func (s *Simulation) bootWithoutFiles() error {
	return s.startAgain(func() error { return os.RemoveAll(s.runDir()) })
}

// startAgain ends all processes and the kubelet, and starts them after another boot. The kubelet starts its
// pods again, with the devices in its checkpoint.
func (s *Simulation) startAgain(tidy func() error) error {
	server := s.server()
	for _, p := range slices.Clone(s.processes) {
		if p != server {
			s.killed(p, "")
		}
	}
	if server != nil { // the last one: nobody takes over
		s.killed(server, "")
	}
	if err := errors.Join(s.bury(), tidy(), os.RemoveAll(s.devinfoDir())); err != nil {
		return fmt.Errorf("start the machine again: %w", err)
	}
	clear(s.lost)
	s.boots++
	if err := s.beginAbsent(); err != nil {
		return err
	}
	return s.restartKubelet(Event{})
}

// justStart starts the kubelet, which lists its pods one by one while others arrive.
func (s *Simulation) justStart() error { return s.restartKubelet(Event{}) }

// anew ends the process of a plugin, if it lives, and starts it.
func (s *Simulation) anew(name string) error {
	if p := s.process(name); p != nil {
		if err := s.finish(p); err != nil {
			return err
		}
	}
	return s.begin(name)
}

// ofVFs returns the name of the process with the plugin of the VFs.
func (n *Node) ofVFs() string { return n.names()[len(n.names())-1] }

// loseRecords starts the kubelet without its checkpoint, while its pods run. In a calm the coordinator knows
// all their containers.
func (s *Simulation) loseRecords() error {
	for _, p := range s.kubelet.Pods() {
		s.kubelet.Run(p)
	}
	for _, resource := range []string{model.GPUs, model.VFs} {
		for id, p := range s.kubelet.Holders(resource) {
			s.lost[id] = append(s.lost[id], p)
		}
	}
	if err := s.kubelet.Lose(); err != nil {
		return err
	}
	s.reconnect()
	return s.beginCalm(Event{})
}

// unrecorded returns the devices of living pods that the kubelet has no records of.
func (s *Simulation) unrecorded() map[string][]*model.Pod {
	for id, pods := range s.lost {
		living := slices.DeleteFunc(pods, func(p *model.Pod) bool { return !p.Living() })
		if s.lost[id] = living; len(living) == 0 {
			delete(s.lost, id)
		}
	}
	s.forgotten = s.forgotten && len(s.lost) > 0
	return s.lost
}

// checkLost: in a calm a plugin prefers no device of a running container whose record is lost, as long as the
// kubelet offers enough others.
func (s *Simulation) checkLost(q model.Question, ids []string) {
	lost := s.unrecorded()
	isLost := func(id string) bool { return lost[id] != nil && !slices.Contains(q.MustInclude, id) }
	others := slices.DeleteFunc(slices.Clone(q.Available), isLost)
	judging := s.judging && !s.forgotten
	if i := slices.IndexFunc(ids, isLost); judging && i >= 0 && len(others) >= q.Size {
		s.wrong(twoOwners, "%s of %s is preferred, with %d others free", ids[i], lost[ids[i]][0].UID, len(others))
	}
}

// layout returns a condition under which the kubelet writes its checkpoint in another layout, and the
// plugin of the GPUs starts again without a GPU of a container.
func layout(other func([]byte) []byte) func(*Simulation) error {
	return func(s *Simulation) error {
		if err := s.kubelet.Layout(other); err != nil {
			return err
		}
		return s.loseHeld()
	}
}

// removeCheckpoint removes the checkpoint of a running kubelet: somebody tidies up.
func (s *Simulation) removeCheckpoint() error {
	if err := os.Remove(kubelet.CheckpointPath(s.kubeletDir())); err != nil {
		return fmt.Errorf("remove the checkpoint: %w", err)
	}
	return s.loseHeld()
}

// loseHeld starts the plugin of the GPUs after the loss of a GPU that a container holds: without the
// kubelet's checkpoint only the coordinator's file tells of the GPU.
func (s *Simulation) loseHeld() error {
	s.noCheckpoint = true
	s.lasting(func() error {
		s.noCheckpoint = false
		return s.kubelet.Layout(nil)
	})
	held := s.heldGPU()
	if held == "" {
		return nil
	}
	if err := s.hardware.Apply(hardware.Change{What: hardware.OffTheBus, Of: held}); err != nil {
		return err
	}
	return s.anew(gpuProcess)
}

// heldGPU returns the first GPU of a container, "" for none.
func (s *Simulation) heldGPU() string {
	held := slices.Sorted(maps.Keys(s.kubelet.Holders(model.GPUs)))
	if len(held) == 0 {
		return ""
	}
	return held[0]
}

// savesGPUs reports whether the coordinator's file tells of the first GPU of a container.
func savesGPUs(s *Simulation) bool {
	held := s.heldGPU()
	saved, err := admission.Saved(s.runDir(), bootID(s.boots))
	is := func(d device.Device) bool { return d.ID == held }
	return err == nil && held != "" && slices.ContainsFunc(saved[model.GPUs].Ordered(), is)
}

func (s *Simulation) setClockForth() error { return s.setClock(time.Hour) }

func (s *Simulation) setClockBack() error { return s.setClock(-time.Hour) }

// setClock sets the clock of the machine, by which pods and files have their times. Timers do not change.
func (s *Simulation) setClock(step time.Duration) error {
	s.clock += step
	clock := s.clock
	s.kubelet.Now = func() time.Time { return time.Now().Add(clock) }
	for _, dir := range []string{s.runDir(), s.kubeletDir()} {
		err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			info, err := entry.Info()
			if err != nil {
				return fmt.Errorf("set the time of a file: %w", err)
			}
			return os.Chtimes(name, time.Time{}, info.ModTime().Add(-step))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// betweenPorts is the time between the failures of two ports.
const betweenPorts = 6 * time.Second

// failPorts lets all PFs fail, one after the other.
func (s *Simulation) failPorts() error {
	for _, port := range s.hardware.Ports() {
		if err := s.hardware.Apply(hardware.Change{What: hardware.Failure, Of: port.String()}); err != nil {
			return err
		}
		seeds.Sleep(betweenPorts)
	}
	return nil
}

// delayNodes starts the plugin of the VFs before the kernel has made the common device node of RDMA.
func (s *Simulation) delayNodes() error {
	s.dev.away.Store(true)
	s.lasting(func() error { s.dev.away.Store(false); return nil })
	return s.anew(s.ofVFs())
}

// delayVerbs starts the plugin of the VFs before the kernel has made their own device nodes of RDMA.
func (s *Simulation) delayVerbs() error {
	s.hardware.SetVerbs(false)
	s.lasting(func() error { s.hardware.SetVerbs(true); return nil })
	return s.anew(s.ofVFs())
}

// delayDriver starts the plugin of the GPUs before their driver.
func (s *Simulation) delayDriver() error {
	if _, driver := s.hardware.GPUs(); driver {
		if err := s.hardware.Apply(hardware.Change{What: hardware.Driver}); err != nil {
			return err
		}
	}
	return s.anew(gpuProcess)
}
