// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing/synctest"
	"time"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/model"
	"github.com/tandem-k8s/tandem/test/simulation/hardware"
	"github.com/tandem-k8s/tandem/test/simulation/seeds"
)

// forge makes the next pods claim to be mirrors of living pods.
func (s *Simulation) forge() error {
	s.forging = 3
	return nil
}

// claim sets the UID that a new pod claims: none, or a forged one.
func (s *Simulation) claim(p *model.Pod) {
	living := s.kubelet.Pods()
	uid := ""
	if s.forging > 0 && len(living) > s.forging {
		uid = living[s.forging].UID
		s.forging--
		s.trace("%s claims to be the mirror of %s", p.Name, uid)
	}
	s.records.claim(p.Pod, uid)
}

// nameAlike makes the next random pod have the name of a pod in another namespace.
func (s *Simulation) nameAlike() error {
	s.alike = true
	return nil
}

// blockDevinfo makes Allocate of VFs fail.
func (s *Simulation) blockDevinfo() error { return s.block(s.devinfoDir()) }

// blockPairs makes Allocate of pairs fail.
func (s *Simulation) blockPairs() error { return s.block(filepath.Join(s.runDir(), "pairs")) }

// block makes a folder unusable until the end of the storm: a file has its name.
func (s *Simulation) block(dir string) error {
	aside := dir + ".aside"
	if err := os.Rename(dir, aside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("block a folder: %w", err)
	}
	s.lasting(func() error {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("unblock a folder: %w", err)
		}
		if err := os.Rename(aside, dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("unblock a folder: %w", err)
		}
		return nil
	})
	return os.WriteFile(dir, nil, 0o600)
}

// vanishSoon makes the devices of the next Allocate vanish before it.
func (s *Simulation) vanishSoon() error {
	s.vanishing = true
	s.lasting(func() error { s.vanishing = false; return nil })
	return nil
}

// vanish makes devices vanish that the kubelet is about to allocate.
func (s *Simulation) vanish(resource string, ids []string) {
	if !s.vanishing {
		return
	}
	s.vanishing = false
	change := hardware.Change{What: hardware.OffTheBus, Of: ids[0]}
	if resource == model.VFs {
		change = hardware.Change{What: hardware.NumberOfVFs, Of: strconv.Itoa(3 - s.hardware.PerPort())}
	}
	s.trace("%s: %s", change.What, change.Of)
	if err := s.hardware.Apply(change); err != nil {
		s.trace("%v", err)
	}
	synctest.Wait()
}

// refuseNext makes the kubelet refuse the next pod after the first resource of a container.
func (s *Simulation) refuseNext() error {
	trouble := s.kubelet.Trouble
	s.kubelet.Trouble.Fail = 1
	s.lasting(func() error { s.kubelet.Trouble = trouble; return nil })
	return nil
}

// otherVFs is another name of the VFs.
const otherVFs = "nvidia.com/other"

// renameVFs offers the VFs under another name. VFs of containers are not offered again.
func (s *Simulation) renameVFs() error {
	if err := s.offerVFs(otherVFs); err != nil {
		return err
	}
	s.lasting(func() error { return s.offerVFs(model.VFs) })
	seeds.Sleep(time.Second)
	offered, err := s.endpoints.devices(otherVFs)
	if err != nil {
		return err
	}
	for _, d := range offered {
		if owner := s.kubelet.Holders(model.VFs)[d.ID]; d.Healthy && owner != nil {
			s.wrong(twoOwners, "%s is held by %s, and offered as %s", d.ID, owner.UID, otherVFs)
		}
	}
	return nil
}

// offerVFs renames the VFs, and starts their plugin again.
func (s *Simulation) offerVFs(name string) error {
	s.vfName = name
	if err := s.writeFiles(); err != nil {
		return err
	}
	return s.anew(s.ofVFs())
}

// claim sets the UID of the static pod whose mirror a pod claims to be, "" for none.
func (r *records) claim(p kubelet.Pod, uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.claims, p)
	if uid != "" {
		r.claims[p] = uid
	}
}
