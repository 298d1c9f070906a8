// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// savedState is the state for the next server: devices with their places, for a plugin that does not find a
// device after a restart; holders; the open admission; and decisions, for people. Another server continues
// with the same state: what is not saved is said at its field, and is unknown to the next server.
type savedState struct {
	Resources []device.SavedResource   `json:"resources"`
	Allocates []holders.Allocate       `json:"allocates,omitempty"`
	Found     holders.Holders          `json:"found,omitempty"`
	Unlisted  holders.Holders          `json:"unlisted,omitempty"`
	Admission *savedAdmission          `json:"admission,omitempty"`
	Seen      savedListing             `json:"seen"`
	Known     map[string]holders.Known `json:"known,omitempty"`
	Decisions []savedDecision          `json:"decisions,omitempty"` // of living containers
}

// savedAdmission is the open admission, with what its asker does not save.
type savedAdmission struct {
	openAdmission
	Others []string `json:"others,omitempty"` // of the asker: as alignments they could not be ""
}

// savedListing is the last PodResources List, without its containers, which can be many.
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
	c.addOptions()
	s := c.current()
	var decisions []*api.Decision
	c.locked(func() { decisions = c.history.all() })
	return savedState{
		Resources: s.resources.Save(), Allocates: s.allocates,
		Found:     s.found[max(0, len(s.found)-maxHolders):],
		Unlisted:  s.unlisted,
		Admission: saveAdmission(s.open, c.now()), Seen: saveListing(s.listing), Known: s.known,
		Decisions: saveDecisions(decisions),
	}
}

// saveAdmission returns the open admission for the file, nil without devices or a live plan.
func saveAdmission(open *openAdmission, now time.Time) *savedAdmission {
	p := open.live(now)
	if p == nil && open.allocated() == nil {
		return nil
	}
	k := &savedAdmission{openAdmission: *open}
	container := *open.Container
	container.Pods = container.Pods[:min(len(container.Pods), maxPods)]
	if container.Asker != nil {
		asker := *container.Asker
		asker.Pods = asker.Pods[:min(len(asker.Pods), maxPods)]
		container.Asker = &asker
		for _, alignment := range asker.Others {
			k.Others = append(k.Others, string(alignment))
		}
	}
	k.Container, k.Plan = &container, p
	return k
}

// saveListing returns a listing for the file.
func saveListing(l listing) savedListing {
	return savedListing{l.Read, l.Life, slices.Collect(maps.Keys(l.Pods)), l.Arrived}
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
	if n := max(len(k.Found), len(k.Unlisted)); n > maxHolders {
		return fmt.Errorf("%d holders, more than %d", n, maxHolders)
	}
	next := c.current().clone()
	next.resources = set
	next.allocates, next.unlisted, next.known = k.Allocates, k.Unlisted, k.Known
	next.hold(k.Found)
	next.open = k.Admission.restore(c.now())
	if next.open != nil {
		next.ids = next.open.Container.ID
	}
	next.listing = k.Seen.restore()
	c.state.Store(next)
	if err := c.history.restore(k.Decisions); err != nil {
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

// restore returns the saved admission, nil for none. A plan is dropped if it has expired, or if its lifetime
// exceeds planTTL: the clock was changed.
func (k *savedAdmission) restore(now time.Time) *openAdmission {
	if k == nil || k.Container == nil {
		return nil
	}
	open := &k.openAdmission
	for _, alignment := range k.Others {
		if a := open.Container.Asker; a != nil {
			a.Others = append(a.Others, intent.Alignment(alignment))
		}
	}
	if open.Devices == nil {
		open.Devices = kubelet.Devices{}
	}
	if p := open.live(now); p == nil || p.Expires.Sub(now) > planTTL {
		open.Plan = nil
	}
	if open.Plan == nil && open.allocated() == nil {
		return nil
	}
	return open
}

// restoreHolders reads the holders from the kubelet's checkpoint, for a starting server. What the kubelet has
// lost the records of is in the file.
func (c *Coordinator) restoreHolders() {
	s := c.current().clone()
	sources := holders.Sources{
		Allocates: s.allocates, Known: s.known, Before: s.found, Unlisted: s.unlisted, Life: c.Kubelet.Life(),
	}
	recorded, err := c.Kubelet.Checkpoint()
	if err != nil {
		c.Log.Info("device checkpoint of the kubelet not read", "error", err)
	}
	sources.Checkpoint = kubelet.Read(recorded, err)
	if c.Kubelet.Life() != sources.Life { // a kubelet has started meanwhile
		sources.Life = ""
	}
	found := holders.Find(sources)
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

// savedDecision is the file format of a decision. The fields beside the message repeat it for the version
// before.
type savedDecision struct {
	Container   *kubelet.Container `json:"container,omitempty"`
	PodUID      string             `json:"uid,omitempty"`
	Allocated   []string           `json:"allocated"`
	AllocatedAt time.Time          `json:"given"`
	Message     json.RawMessage    `json:"decision"` // api.Decision
}

// saveDecisions converts the decisions whose containers hold their devices to their file format. It omits
// decisions that fail to encode.
func saveDecisions(decisions []*api.Decision) []savedDecision {
	saved := make([]savedDecision, 0, len(decisions))
	for _, m := range decisions {
		if !m.GetHeld() {
			continue
		}
		message := proto.CloneOf(m)
		if message.Container != nil {
			message.Container.Uid = "" // the version before does not know the field, and would read nothing
		}
		if encoded, err := protojson.Marshal(message); err == nil {
			saved = append(saved, savedDecision{
				Container: decodeOwner(m.GetContainer()), PodUID: m.GetPodUid(), Allocated: m.GetAllocated(),
				AllocatedAt: time.Unix(0, m.GetAllocatedUnixNano()), Message: encoded,
			})
		}
	}
	return saved
}

// restore replaces the decisions of an empty log by those that an earlier server saved. If the saved
// decisions are invalid, restore returns an error and the log stays empty.
func (d *decisionLog) restore(saved []savedDecision) error {
	restored := decisionLog{isHeld: d.isHeld}
	if len(saved) > maxDecisions {
		return fmt.Errorf("%d decisions, more than %d", len(saved), maxDecisions)
	}
	for _, s := range saved {
		m := &api.Decision{}
		if err := protojson.Unmarshal(s.Message, m); err != nil {
			return fmt.Errorf("parse a decision: %w", err)
		}
		if m.GetResource() == "" || len(s.Allocated) == 0 {
			return errors.New("a decision without resource or allocated devices")
		}
		m.Container, m.PodUid = encodeOwner(s.Container, s.PodUID), s.PodUID
		m.Allocated, m.AllocatedUnixNano = s.Allocated, s.AllocatedAt.UnixNano()
		e := newDecision(m)
		restored.entries = append(restored.entries, e)
		restored.index(e)
	}
	restored.fit()
	*d = restored
	return nil
}
