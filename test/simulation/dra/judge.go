// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/plugins/dra"
	"github.com/tandem-k8s/tandem/plugins/dra/claims"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/apiserver"
	"github.com/tandem-k8s/tandem/test/disk"
	"github.com/tandem-k8s/tandem/test/simulation/seeds"
)

// Promises in every weather, and the texts of their breaches.
const (
	// twoOwners: a GPU or VF is prepared for one claim at a time, counts for one claim in the checkpoint, and is
	// not a device of a pod from before the migration.
	twoOwners = "a device is prepared for two claims"
	// notKept: a claim whose Prepare was answered with success stays prepared, with the same devices, until
	// Unprepare is called, or the pods of the claim have ended and the API server has no object of the claim.
	notKept = "a prepared claim is not prepared any more"
	// otherAnswer: a repeated Prepare has the same answer.
	otherAnswer = "a repeated Prepare has another answer"
	// wrongFiles: the CDI spec of a prepared claim is there, and names the devices of the claim's containers;
	// while one of these devices is gone, there is none.
	wrongFiles = "the CDI spec of a prepared claim is wrong"
	// goneNamed: no CDI spec names a device that the node lacks: its device node can be another device's.
	goneNamed = "a CDI spec names a device that is gone"
	// wrongShare: a container has the GPUs of its own requests, as many VFs as these requests have, and nothing
	// else.
	wrongShare = "a container has other devices than its requests"
	// twoValues: the CDI devices of a container agree on the values of variables.
	twoValues = "a container has two values of a variable"
	// brokenContract: answers obey the kubelet's contract.
	brokenContract = "an answer breaks the kubelet's contract"
	// drained: a driver that drains prepares no claim.
	drained = "a driver that drains prepares a claim"
	// lateEnd: the driver ends within the time that Kubernetes gives a pod.
	lateEnd = "the driver does not end in time"
	// foreignChanged: files and slices of another driver or node, and the status of another driver's devices, do
	// not change.
	foreignChanged = "something foreign is changed"
)

// Promises in a calm.
const (
	// refused: each Prepare of claims with published devices succeeds.
	refused = "Prepare fails in a calm"
	// notFreed: each Unprepare succeeds.
	notFreed = "Unprepare fails in a calm"
	// died: the driver does not end.
	died = "the driver ends in a calm"
	// leftClaim: a claim that was unprepared, or is gone with its pod, is free.
	leftClaim = "a claim that is gone is still prepared"
	// leftFile: no files pile up: only files of prepared claims are there.
	leftFile = "a file is left behind"
	// wrongSlices: the published slices have what the node has, and taints of what others hold.
	wrongSlices = "the published slices are wrong"
	// wrongStatus: the status of a prepared claim has the claim's devices.
	wrongStatus = "the status of a claim lacks a device"
	// stillPublished: on a node that drains no device is published, and all claims end.
	stillPublished = "a node that drains has devices or claims"
)

// known returns the claims of the checkpoint, with the recorded IDs.
func (s *Simulation) known() []claims.Claim {
	known, err := s.preparer().Prepared(pool.Machine{})
	if err != nil {
		s.wrong(notKept, "%v", err)
	}
	return known
}

// preparer returns a reader of the checkpoint.
func (n *Node) preparer() *claims.Preparer {
	return claims.New(claims.Options{Dir: dra.PluginDir(n.kubeletDir())})
}

// held returns the claims that have to stay prepared, each once.
func (s *Simulation) held() (held []*claim) {
	for _, p := range s.pods {
		for _, c := range p.claims {
			if c.holds() && !p.isGone() && !slices.Contains(held, c) {
				held = append(held, c)
			}
		}
	}
	return held
}

// checkAlways checks the promises in every weather.
func (s *Simulation) checkAlways() {
	known := s.known()
	s.checkOwners(known)
	s.checkContainers()
	for _, c := range s.held() {
		s.checkKept(c, known)
		if c.restored {
			s.checkFiles(c)
		}
	}
	for _, p := range s.pods {
		if !p.isGone() { // else the driver may unprepare its claims
			s.checkShares(p)
		}
	}
	if changed := s.foreign.changed(s.server); changed != "" {
		s.wrong(foreignChanged, "%s", changed)
	}
}

// checkOwners: each device counts for one claim.
func (s *Simulation) checkOwners(known []claims.Claim) {
	owners := s.old.holders()
	for _, c := range known {
		for _, d := range c.Devices {
			for _, id := range append(slices.Concat(d.GPUs, d.VFs), d.Token) {
				self := fmt.Sprintf("%s (%s)", c, c.UID)
				if owner := owners[id]; owner != "" && owner != self && id != "" {
					s.wrong(twoOwners, "%s of %s and %s", id, owner, self)
				}
				owners[id] = self
			}
		}
	}
}

// checkContainers: containers of pods without a common claim have no common device, by their CDI specs.
func (s *Simulation) checkContainers() {
	owners := map[string]*pod{}
	for _, p := range s.pods {
		for _, c := range p.claims {
			if !c.holds() || p.isGone() {
				continue
			}
			for _, id := range c.seen {
				if o := owners[id]; o != nil && o != p && !slices.Contains(o.claims, c) {
					s.wrong(twoOwners, "%s of %s and %s", id, o, p)
				}
				owners[id] = p
			}
		}
	}
}

// checkKept: a claim is prepared, with its devices.
func (s *Simulation) checkKept(c *claim, known []claims.Claim) {
	i := slices.IndexFunc(known, func(k claims.Claim) bool { return k.UID == c.uid })
	if i < 0 {
		s.wrong(notKept, "%s", c)
		return
	}
	var devices, gpus []string
	vfs := 0
	for _, d := range known[i].Devices {
		devices, gpus, vfs = append(devices, d.Device), append(gpus, d.GPUs...), vfs+len(d.VFs)
	}
	if !slices.Equal(devices, c.devices) || !slices.Equal(gpus, c.gpus) || vfs != c.vfs {
		s.wrong(notKept, "%s with GPUs %v and %d VFs has %v with GPUs %v and %d VFs", c, c.gpus, c.vfs, devices,
			gpus, vfs)
	}
}

// checkPrepare: in a calm Prepare succeeds.
func (s *Simulation) checkPrepare(p *pod, err error) {
	if s.judging {
		s.wrong(refused, "%s %v: %v", p, p.claims, err)
	}
}

// checkUnprepare: in a calm Unprepare succeeds.
func (s *Simulation) checkUnprepare(p *pod, err error) {
	if s.judging {
		s.wrong(notFreed, "%s %v: %v", p, p.claims, err)
	}
}

// checkAlive: in a calm the driver does not end.
func (s *Simulation) checkAlive(err error) {
	if s.judging {
		s.wrong(died, "%v", err)
	}
}

// grace is the time that Kubernetes gives a pod by default, less a reserve.
const grace = 20 * time.Second

// finish ends a process in order, and judges the time.
func (s *Simulation) finish(p *process) error {
	began := time.Now()
	err := s.Node.finish(p)
	if took := time.Since(began); took > grace {
		s.wrong(lateEnd, "%s takes %s", p.uid, took)
	}
	return err
}

// orphaned reports whether a claim is prepared that no pod has.
func (s *Simulation) orphaned() bool { return len(s.orphans()) > 0 }

// orphans returns the claims that are prepared although no pod has them.
func (s *Simulation) orphans() (orphans []claims.Claim) {
	its := map[types.UID]bool{}
	for _, p := range s.pods {
		for _, c := range p.claims {
			its[c.uid] = its[c.uid] || !p.forgotten
		}
	}
	return slices.DeleteFunc(s.known(), func(c claims.Claim) bool { return its[c.UID] })
}

// checkCalm checks the promises in a calm.
func (s *Simulation) checkCalm() {
	for _, c := range s.orphans() {
		s.wrong(leftClaim, "%s (%s)", c, c.UID)
	}
	for _, p := range s.living() {
		for _, c := range p.claims {
			if !c.prepared {
				s.wrong(refused, "%s waits for %s", p, c)
			}
		}
	}
	if slices.ContainsFunc(s.held(), s.lacksStatus) { // its writer was killed, and another driver looks later
		seeds.Sleep(statusPause)
	}
	for _, c := range s.held() {
		c.restored = true
		s.checkStatus(c)
	}
	s.checkAlways()
	s.checkTemporaries()
	s.checkLeft()
	s.checkSlices()
}

// checkDrained checks the promises in a calm of a node that drains: all pods end, as no device is published.
func (s *Simulation) checkDrained() {
	if published := s.published(); len(published) > 0 {
		s.wrong(stillPublished, "%d slices", len(published))
	}
	for _, p := range s.pods {
		s.wrong(stillPublished, "%s", p)
	}
	for _, c := range s.known() {
		s.wrong(stillPublished, "%s (%s)", c, c.UID)
	}
	s.checkAlways()
	s.checkLeft()
}

// checkStatus: the status of a claim has the devices of the driver, and still those of another driver.
func (s *Simulation) checkStatus(c *claim) {
	o := apiserver.Get[*resourceapi.ResourceClaim](s.server, namespace, c.name)
	if o == nil || o.UID != c.uid {
		return
	}
	told, others := devicesIn(o)
	if !slices.Equal(told, c.devices) {
		s.wrong(wrongStatus, "%s: %v", c, told)
	}
	for _, result := range o.Status.Allocation.Devices.Results {
		if result.Driver != pool.Driver && others != 1 {
			s.wrong(foreignChanged, "the status of %s for %s", c, result.Driver)
		}
	}
}

// statusPause is the longest time between two looks of a driver at all its claims: claimsPause of package
// dra, and a fifth.
const statusPause = 12*time.Minute + 10*time.Second

// lacksStatus reports whether the status of a claim does not have the devices of the driver.
func (s *Simulation) lacksStatus(c *claim) bool {
	o := apiserver.Get[*resourceapi.ResourceClaim](s.server, namespace, c.name)
	if o == nil || o.UID != c.uid {
		return false
	}
	told, _ := devicesIn(o)
	return !slices.Equal(told, c.devices)
}

// devicesIn returns the driver's devices in the status of a claim, and the number of other drivers' devices.
func devicesIn(o *resourceapi.ResourceClaim) (told []string, others int) {
	told = []string{}
	for _, d := range o.Status.Devices {
		if d.Driver == pool.Driver {
			told = append(told, d.Device)
		} else {
			others++
		}
	}
	return told, others
}

// checkTemporaries: no temporary file is left.
func (s *Simulation) checkTemporaries() {
	for _, dir := range []string{
		dra.PluginDir(s.kubeletDir()), s.cdiDir(), s.pairsDir(), s.path("devinfo"), s.runDir(),
	} {
		if left := disk.Leftovers(dir); len(left) > 0 {
			s.wrong(leftFile, "temporary files %v", left)
		}
	}
}

// checkLeft: only the files of prepared claims are there.
func (s *Simulation) checkLeft() {
	known := s.known()
	its := func(name string) bool {
		return slices.ContainsFunc(known, func(c claims.Claim) bool {
			return strings.Contains(name, string(c.UID)+"-") ||
				strings.HasSuffix(name, "_"+string(c.UID)+".json")
		})
	}
	for _, dir := range []string{s.cdiDir(), s.pairsDir()} {
		for _, name := range names(dir) {
			if _, foreign := s.foreign.files[filepath.Join(dir, name)]; !foreign && !its(name) {
				s.wrong(leftFile, "%s", name)
			}
		}
	}
	pluginDir := dra.PluginDir(s.kubeletDir())
	expected := []string{claims.FileName, "claims.lock", "serialize.lock"}
	for _, name := range names(pluginDir) {
		if !slices.Contains(expected, name) {
			s.wrong(leftFile, "%s", name)
		}
	}
}

// names returns the names in a folder.
func names(dir string) (names []string) {
	entries, _ := os.ReadDir(dir) // none without the folder
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}
