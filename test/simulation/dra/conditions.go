// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/plugins/dra"
	"github.com/tandem-k8s/tandem/plugins/dra/claims"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/before"
	"github.com/tandem-k8s/tandem/test/simulation/seeds"
)

// condition is a circumstance of a storm.
type condition struct {
	seeds.Condition
	// meet lets the condition come about, and reports false if the node is not in a state for it.
	meet func(*Simulation) (bool, error)
}

// conditions are the circumstances of storms beside the faults of storm.go.
var conditions = []condition{
	{seeds.Condition{Name: "the clock is set back"}, (*Simulation).setClockBack},
	{seeds.Condition{Name: "the machine starts again"}, (*Simulation).startAgain},
	{seeds.Condition{Name: "the kubelet lists no pod yet"}, (*Simulation).listNoPod},
	{seeds.Condition{Name: "the clock is set back after an unfinished write"}, (*Simulation).leaveLaterFile},
	{seeds.Condition{Name: "claims.json is of a newer version"}, (*Simulation).meetNewerClaims},
	{seeds.Condition{Name: "claims.json is lost"}, (*Simulation).loseClaims},
	{seeds.Condition{Name: "the kubelet's checkpoint has another layout"}, spoil(emptyObject)},
	{seeds.Condition{Name: "the kubelet's checkpoint is removed"}, spoil(os.Remove)},
	{seeds.Condition{Name: "a later pod uses a shared claim beside its own"}, (*Simulation).shareLater},
}

// deal adds the condition of the next storm to those that wait: the only one of the options, or each in turn.
func (s *Simulation) deal() {
	s.cycles++
	s.met = false
	dealt := seeds.Deal(conditions, func(c condition) seeds.Condition { return c.Condition },
		s.options.Condition, s.seed, s.cycles)
	if !slices.ContainsFunc(s.waiting, func(c condition) bool { return c.Name == dealt.Name }) {
		s.waiting = append(s.waiting, dealt)
	}
}

// meetDealt lets the oldest of the waiting conditions come about for which the node is ready, one in a storm.
func (s *Simulation) meetDealt() error {
	for i := 0; i < len(s.waiting) && !s.met; i++ {
		c := s.waiting[i]
		met, err := c.meet(s)
		if err != nil {
			return err
		}
		if met {
			s.note(c.Name)
			s.met, s.waiting = true, slices.Delete(s.waiting, i, i+1)
		}
	}
	return nil
}

// setClockBack makes all files of the driver an hour newer than the clock.
func (s *Simulation) setClockBack() (bool, error) {
	for _, dir := range []string{dra.PluginDir(s.kubeletDir()), s.cdiDir(), s.pairsDir(), s.runDir()} {
		touch(dir, time.Now().Add(time.Hour))
	}
	return true, nil
}

// leaveLaterFile leaves the temporary file of a killed driver, which is an hour newer than the clock.
func (s *Simulation) leaveLaterFile() (bool, error) {
	name := filepath.Join(s.runDir(), ".tandem-LATER")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		return false, fmt.Errorf("leave a file: %w", err)
	}
	touch(name, time.Now().Add(time.Hour))
	return true, nil
}

// startAgain starts the machine again in order: the folders in memory are empty, and all claims are prepared
// again.
func (s *Simulation) startAgain() (bool, error) {
	if err := s.finishAll(s.finish); err != nil {
		return false, err
	}
	s.disk.Settle()
	if err := s.losePower(); err != nil {
		return false, err
	}
	return true, s.begin()
}

// listNoPod starts the kubelet, which lists its pods only after the driver has looked.
func (s *Simulation) listNoPod() (bool, error) {
	if len(s.old.holders()) == 0 {
		return false, nil // the driver asks for these pods alone
	}
	s.restartKubelet()
	s.old.hide(true)
	seeds.Sleep(look)
	s.old.hide(false)
	return true, nil
}

// overwritten: a driver leaves the files of a newer version as they are.
const overwritten = "a file of a newer version is overwritten"

// meetNewerClaims starts the driver with the claims of a newer version, which then comes back.
func (s *Simulation) meetNewerClaims() (bool, error) {
	name := filepath.Join(dra.PluginDir(s.kubeletDir()), claims.FileName)
	if err := s.finishAll(s.finish); err != nil {
		return false, err
	}
	s.disk.Settle()
	content, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, s.begin()
	}
	if err != nil {
		return false, fmt.Errorf("read the claims: %w", err)
	}
	newer := before.Newer(content)
	if err := os.WriteFile(name, newer, 0o600); err != nil {
		return false, fmt.Errorf("write claims of a newer version: %w", err)
	}
	if err := s.begin(); err != nil {
		return false, err
	}
	seeds.Sleep(repairing)
	if err := s.finishAll(s.finish); err != nil {
		return false, err
	}
	if is, err := os.ReadFile(name); !bytes.Equal(is, newer) {
		s.wrong(overwritten, "%.60q, %v", is, err)
	}
	if err := os.WriteFile(name, content, 0o600); err != nil {
		return false, fmt.Errorf("write the claims: %w", err)
	}
	stamp(name)
	return true, s.begin()
}

// loseClaims removes the record of prepared claims: somebody tidies up. A driver that runs writes it again,
// unless a newer one has prepared a claim and died: the claim is then not known to anybody.
func (s *Simulation) loseClaims() (bool, error) {
	if d := s.driver(); len(s.held()) == 0 || d == nil || d.uid != fmt.Sprint("driver-", s.started) {
		return false, nil
	}
	s.disk.Settle()
	if err := os.Remove(filepath.Join(dra.PluginDir(s.kubeletDir()), claims.FileName)); err != nil {
		return false, fmt.Errorf("lose the claims: %w", err)
	}
	seeds.Sleep(repairing)
	return true, nil
}

// spoil changes the kubelet's checkpoint while pods have devices from device plugins.
func spoil(change func(name string) error) func(*Simulation) (bool, error) {
	return func(s *Simulation) (bool, error) {
		if len(s.old.holders()) == 0 {
			return false, nil
		}
		err := change(kubelet.CheckpointPath(s.kubeletDir()))
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		seeds.Sleep(look)
		return true, err
	}
}

// emptyObject replaces a file by one without the keys of this version.
func emptyObject(name string) error { return os.WriteFile(name, []byte("{}"), 0o600) }

// shareLater lets a pod arrive that uses a claim of another pod, which is prepared, beside a claim of its
// own, in one container. The driver refuses the pod where both claims have VFs.
func (s *Simulation) shareLater() (bool, error) {
	i := slices.IndexFunc(s.living(), func(p *pod) bool {
		c := p.claims[0]
		return c.shared && c.prepared && c.holds() && c.vfs > 0 && !p.deleted
	})
	offered := s.offer()
	if i < 0 || offered == nil {
		return false, nil
	}
	s.made++
	p := &pod{name: s.freeName(), uid: types.UID(fmt.Sprint("pod-", s.made))}
	own := &claim{name: p.name + "-claim-1", uid: types.UID(fmt.Sprint("claim-", s.made, "-1"))}
	object := own.allocate(offered, []want{{pool.TypeVF, 1}}, false)
	if object == nil {
		return false, nil
	}
	object.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: p.name, UID: p.uid}}
	p.claims = []*claim{s.living()[i].claims[0], own}
	s.server.Put(object)
	s.add(p)
	s.trace("%s arrives", p)
	if err := s.prepare(p); err != nil {
		s.trace("%s is refused: %v", p, err)
	}
	s.checkAlways()
	s.end(p)
	return true, nil
}
