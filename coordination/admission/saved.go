// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/history"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/pairs"
)

// savedState is the state for the next server: devices with their places, for a plugin that does not find a
// device after a restart; Allocates missing in the kubelet's records; and decisions, for people.
type savedState struct {
	Resources []device.SavedResource   `json:"resources"`
	Allocates []holders.Allocate       `json:"allocates,omitempty"` // of the holders found last too
	Open      *savedContainer          `json:"open,omitempty"`
	Plan      *savedPlan               `json:"plan,omitempty"`
	Seen      savedListing             `json:"seen"`
	Known     map[string]holders.Known `json:"known,omitempty"`
	Decisions []history.Saved          `json:"decisions,omitempty"` // of living containers
}

// savedContainer is the container of the latest Allocate, valid while the kubelet's checkpoint is unchanged
// since.
type savedContainer struct {
	Recorded kubelet.Identity   `json:"recorded"`
	Source   intent.Source      `json:"source,omitempty"` // "" for none
	UID      string             `json:"uid,omitempty"`
	Owner    *kubelet.Container `json:"owner,omitempty"`
	Exact    bool               `json:"exact,omitempty"`
	Requests map[string]int     `json:"requests,omitempty"`
	Align    intent.Alignment   `json:"alignment,omitempty"`
	Others   []string           `json:"others,omitempty"` // alignments, "" for none
	Pods     []kubelet.Pod      `json:"pods,omitempty"`
	Devices  kubelet.Devices    `json:"devices"`
	Newest   string             `json:"newest,omitempty"`
	Looked   bool               `json:"looked,omitempty"`
	Guessed  bool               `json:"guessed,omitempty"`
	Shown    bool               `json:"shown,omitempty"`
	Refused  bool               `json:"refused,omitempty"` // by an earlier version: the admission is not open
	Files    []string           `json:"files,omitempty"`   // requested pairs files
	VFs      []pairs.VF         `json:"vfs,omitempty"`     // content of the files
}

// savedPlan is the plan for the container in admission.
type savedPlan struct {
	Devices   map[string][]string `json:"devices"`
	Asked     string              `json:"asked"`
	Container *savedContainer     `json:"container"`
	Follows   bool                `json:"follows,omitempty"` // the container is Open
	Expires   time.Time           `json:"expires"`
}

// savedListing is the last PodResources List.
type savedListing struct {
	Looked  bool          `json:"looked"`
	Life    string        `json:"life"`
	Pods    []kubelet.Pod `json:"pods,omitempty"`
	Arrived []kubelet.Pod `json:"arrived,omitempty"`
}

// maxPods limits the saved candidates for the pod of a container.
const maxPods = 64

// save returns the state to be written.
func (c *committedState) save() savedState {
	s := c.current()
	k := savedState{
		Resources: s.resources.Save(), Open: saveContainer(s.open.allocated()), Known: s.known,
		Seen: saveListing(s.listing),
	}
	all := slices.Concat(s.allocates, slices.Concat(s.found, s.unlisted).Save())
	k.Allocates = all[:min(len(all), maxAllocates)] // a version before sets a file with more aside
	if k.Open != nil {
		k.Open.Recorded, k.Open.Files, k.Open.VFs = s.open.recorded, s.open.files, s.open.vfs
	}
	if p := s.open.live(c.now()); p != nil {
		k.Plan = &savedPlan{p.devices, p.resource, saveContainer(s.open.container), k.Open != nil, p.expires}
	}
	var decisions []history.Decision
	c.locked(func() { decisions = c.history.All() })
	k.Decisions = history.Save(decisions)
	return k
}

// saveListing returns a listing for the file.
func saveListing(l listing) savedListing {
	return savedListing{l.Read, l.Life, slices.Collect(maps.Keys(l.Pods)), l.Arrived}
}

// saveContainer returns a container for the file, nil for none.
func saveContainer(c *recipient) *savedContainer {
	if c == nil {
		return nil
	}
	k := &savedContainer{
		Owner: c.Owner, Devices: c.Devices, Newest: c.Newest, Pods: c.Pods[:min(len(c.Pods), maxPods)],
		Looked: c.Looked, Guessed: c.Guessed, Shown: c.Shown,
	}
	if a := c.Asker; a != nil {
		owner := a.Container()
		k.Source, k.UID, k.Owner, k.Exact, k.Requests = a.Source, a.UID, &owner, a.Exact, a.Requests
		k.Align = a.Alignment
		for _, alignment := range a.Others {
			k.Others = append(k.Others, string(alignment))
		}
	}
	return k
}

// restore returns the saved container.
func (k *savedContainer) restore() *recipient {
	c := &recipient{
		Pods: k.Pods, Devices: k.Devices, Newest: k.Newest, Looked: k.Looked, Guessed: k.Guessed, Shown: k.Shown,
	}
	if k.Source == "" || k.Owner == nil {
		c.Owner = k.Owner
		return c
	}
	c.Asker = &asker{
		Source: k.Source, Pod: k.Owner.Pod, UID: k.UID, Name: k.Owner.Name, Requests: k.Requests,
		Alignment: k.Align, Exact: k.Exact, Pods: k.Pods,
	}
	for _, alignment := range k.Others {
		c.Asker.Others = append(c.Asker.Others, intent.Alignment(alignment))
	}
	return c
}

// restore adopts the saved state of an earlier server. Returns an error, without a change, for a
// contradictory state.
func (c *committedState) restore(k savedState, log *slog.Logger) error {
	set, err := device.RestoreResources(k.Resources)
	if err != nil {
		return err
	}
	if n := len(k.Allocates); n > maxAllocates {
		return fmt.Errorf("%d Allocates, more than %d", n, maxAllocates)
	}
	next := c.current().clone()
	next.resources = set
	var found holders.Holders
	found, next.allocates = holders.Restore(k.Allocates, k.Known)
	next.hold(found)
	next.open, next.ids = k.restoreOpen(c.now()), 1
	next.known = k.Known
	next.listing = k.Seen.restore()
	c.state.Store(next)
	if err := c.history.Restore(k.Decisions); err != nil {
		log.Warn("history of decisions not restored", "error", err)
	}
	return nil
}

// restore returns the saved listing.
func (k savedListing) restore() listing {
	listing := listing{Read: k.Looked, Life: k.Life, Arrived: k.Arrived, Pods: map[kubelet.Pod]bool{}}
	for _, pod := range k.Pods {
		listing.Pods[pod] = true
	}
	return listing
}

// restoreOpen returns the open admission, nil for none.
func (k savedState) restoreOpen(now time.Time) *openAdmission {
	var open *openAdmission
	if k.Open != nil && !k.Open.Refused {
		open = &openAdmission{
			container: k.Open.restore(), recorded: k.Open.Recorded, files: k.Open.Files, vfs: k.Open.VFs,
			devices: maps.Clone(k.Open.Devices),
		}
	}
	if p := k.Plan.restore(now); p != nil {
		if open == nil || !k.Plan.Follows {
			open = &openAdmission{container: &recipient{}, devices: kubelet.Devices{}}
		}
		devices := open.container.Devices
		open.container, open.plan = k.Plan.Container.restore(), p
		open.container.Devices = devices
	}
	if open != nil {
		open.container.ID = 1
	}
	return open
}

// restore returns the plan, nil if expired, or if its lifetime exceeds planTTL: the clock was changed.
func (k *savedPlan) restore(now time.Time) *plan {
	if k == nil || k.Container == nil {
		return nil
	}
	if left := k.Expires.Sub(now); left <= 0 || left > planTTL {
		return nil
	}
	return &plan{devices: k.Devices, resource: k.Asked, expires: k.Expires}
}

// restoreHolders reads the holders from the kubelet's checkpoint, for a starting server. What the kubelet has
// lost the records of is in the file.
func (c *Coordinator) restoreHolders() {
	s := c.current().clone()
	sources := holders.Sources{
		Allocates: s.allocates, Known: s.known, Before: s.found, Unlisted: s.unlisted, Kubelet: c.Kubelet.Life(),
	}
	recorded, err := c.Kubelet.Checkpoint()
	if err != nil {
		c.Log.Info("device checkpoint of the kubelet not read", "error", err)
	}
	sources.Recorded = kubelet.Read(recorded, err)
	if c.Kubelet.Life() != sources.Kubelet { // a kubelet has started meanwhile
		sources.Kubelet = ""
	}
	found := holders.Look(sources)
	s.allocates, s.unlisted = found.Allocates, found.Unlisted
	s.hold(found.Holders)
	c.state.Store(s)
}

// Saved returns the resources saved by a server since a boot, "" for the running kernel's.
func Saved(runDir, boot string) (device.Resources, error) {
	saved, err := readStore[savedState](runDir, boot)
	if err != nil {
		return nil, err
	}
	return device.RestoreResources(saved.Resources)
}
