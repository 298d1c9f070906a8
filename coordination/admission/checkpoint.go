package admission

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
)

// checkpointVersion is that of the format below. A file of another version is set aside: what it held is
// rebuilt from the kubelet.
const checkpointVersion = 3

// maxCheckpoint bounds a checkpoint file, in bytes: a thousand devices take about 250 KiB, so that it is good
// for three or four resources of maxDevices.
const maxCheckpoint = 16 << 20

// maxCandidates bounds the pods of which one may own an allocation, in a checkpoint: among more than these
// none is known.
const maxCandidates = 64

// envelope is the checkpoint file.
type envelope struct {
	Version  int             `json:"version"`
	Checksum uint32          `json:"checksum"` // CRC-32 (IEEE) of the bytes of the ledger
	Ledger   json.RawMessage `json:"ledger"`
}

// checkpoint is the ledger as it is written down: enough to go on in the middle of an admission.
type checkpoint struct {
	// /proc/sys/kernel/random/boot_id: after a reboot the devices can be others
	Boot        string            `json:"boot"`
	Sequence    int               `json:"sequence"`
	Foreseen    bool              `json:"foreseen,omitempty"`
	Resources   []savedResource   `json:"resources"`
	Allocations []savedAllocation `json:"allocations"`
	Seen        []kubelet.Pod     `json:"seen,omitempty"`
	Arrived     []kubelet.Pod     `json:"arrived,omitempty"`
	Plan        *savedPlan        `json:"plan,omitempty"`
	Last        savedRecord       `json:"last"`
}

type savedResource struct {
	Name    string        `json:"name"`
	Kind    device.Kind   `json:"kind"`
	Devices []savedDevice `json:"devices"` // all that were ever announced
}

type savedDevice struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	NUMA    *int   `json:"numa,omitempty"`
}

type savedAllocation struct {
	Devices    map[string]map[string]int `json:"devices"` // resource → device ID → sequence
	Owner      *kubelet.Container        `json:"owner,omitempty"`
	UID        string                    `json:"uid,omitempty"` // of the pod
	Candidates []kubelet.Pod             `json:"candidates,omitempty"`
	Looked     bool                      `json:"looked,omitempty"`
	Unasked    bool                      `json:"unasked,omitempty"`
	Asker      *savedAsker               `json:"asker,omitempty"`
	Since      int                       `json:"since,omitempty"`
}

// savedAsker is what of an asker matters after its question: which container it is, and what it is to get.
type savedAsker struct {
	Source    intent.Source    `json:"source"`
	Pod       kubelet.Pod      `json:"pod"`
	UID       string           `json:"uid"`
	Created   time.Time        `json:"created"`
	Alignment intent.Alignment `json:"alignment,omitempty"` // absent where the pod says nothing
	Index     int              `json:"index"`
	Name      string           `json:"name"`
	Role      intent.Role      `json:"role,omitempty"`
	Requests  map[string]int   `json:"requests,omitempty"`
	Exact     bool             `json:"exact,omitempty"`
	Pods      []kubelet.Pod    `json:"pods,omitempty"`
}

type savedPlan struct {
	Devices map[string][]string `json:"devices"`
	Holder  int                 `json:"holder"` // index into Allocations; -1 where the holder has nothing yet
	After   int                 `json:"after"`
	Expires time.Time           `json:"expires"`
	Looked  bool                `json:"looked,omitempty"` // of a holder that has nothing yet
	Pods    []kubelet.Pod       `json:"pods,omitempty"`   // likewise its candidates
	Asker   *savedAsker         `json:"asker,omitempty"`
}

type savedRecord struct {
	Resource string   `json:"resource,omitempty"`
	IDs      []string `json:"ids,omitempty"`
	Holders  []string `json:"holders,omitempty"`
	Known    bool     `json:"known,omitempty"`
	Refused  bool     `json:"refused,omitempty"`
}

// save is a state as it is written down.
func (s *state) save() checkpoint {
	l := s.ledger
	c := checkpoint{
		Sequence: l.sequence,
		Foreseen: l.foreseen,
		Seen:     slices.Collect(maps.Keys(l.seen)),
		Arrived:  slices.Clone(l.arrived),
		Last:     savedRecord{s.last.resource, s.last.ids, s.last.holders, s.last.known, s.last.refused},
	}
	for _, r := range l.resources {
		c.Resources = append(c.Resources, savedResource{Name: r.name, Kind: r.kind, Devices: r.saved})
	}
	index := map[*allocation]int{}
	for a := range l.allocations() {
		index[a] = len(c.Allocations)
		c.Allocations = append(c.Allocations, a.save())
	}
	if p := l.livePlan(); p != nil {
		holder, holds := index[p.holder]
		if !holds {
			holder = -1
		}
		c.Plan = &savedPlan{
			maps.Clone(p.devices), holder, p.after, p.expires, p.holder.looked, savePods(p.holder.candidates),
			p.asker.save(),
		}
	}
	return c
}

func (a *allocation) save() savedAllocation {
	s := savedAllocation{
		Devices: map[string]map[string]int{}, Owner: a.owner, UID: a.uid, Candidates: savePods(a.candidates),
		Looked: a.looked, Unasked: a.unasked, Asker: a.asker.save(), Since: a.since,
	}
	for name, ids := range a.devices {
		s.Devices[name] = maps.Clone(ids)
	}
	return s
}

// savePods is nil where they are too many to tell anything.
func savePods(pods []kubelet.Pod) []kubelet.Pod {
	if len(pods) > maxCandidates {
		return nil
	}
	return slices.Clone(pods)
}

// save is nil for nobody. What an asker says never changes, so that it can be shared.
func (a *asker) save() *savedAsker {
	if a == nil {
		return nil
	}
	return &savedAsker{
		Source: a.source, Pod: a.pod.Pod, UID: a.pod.UID, Created: a.pod.Created, Alignment: a.pod.Alignment,
		Index: a.index, Name: a.wants.Name, Role: a.wants.Role, Requests: a.wants.Requests,
		Exact: a.exact, Pods: a.pods[:min(len(a.pods), maxCandidates)],
	}
}

// restore is nil for nobody.
func (s *savedAsker) restore() *asker {
	if s == nil {
		return nil
	}
	return &asker{
		source: s.Source, pod: intent.Pod{Pod: s.Pod, UID: s.UID, Created: s.Created, Alignment: s.Alignment},
		index: s.Index, wants: intent.Container{Name: s.Name, Role: s.Role, Requests: s.Requests},
		exact: s.Exact, pods: s.Pods,
	}
}

// saveDevices is what an announcement leaves in the checkpoint.
func saveDevices(devices map[string]device.Device) []savedDevice {
	saved := make([]savedDevice, 0, len(devices))
	for _, d := range slices.SortedFunc(maps.Values(devices), device.Compare) {
		s := savedDevice{ID: d.ID, Address: d.Address.String()}
		if n, known := d.NUMA.Number(); known {
			s.NUMA = &n
		}
		saved = append(saved, s)
	}
	return saved
}

// restore takes a checkpoint over into a new coordinator. It fails, and changes nothing, where the checkpoint
// contradicts itself.
func (c *Coordinator) restore(s checkpoint) error {
	l := newLedger(c.current().ledger.now)
	l.sequence, l.foreseen, l.arrived = s.Sequence, s.Foreseen, s.Arrived
	for _, pod := range s.Seen {
		l.seen[pod] = true
	}
	for _, r := range s.Resources {
		devices, err := r.devices()
		if err != nil {
			return err
		}
		l.announce(r.Name, r.Kind, device.Announcement{Devices: devices})
		l.leave(r.Name)
	}
	restored := make([]*allocation, 0, len(s.Allocations))
	for _, saved := range s.Allocations {
		a := &allocation{
			owner: saved.Owner, uid: saved.UID, candidates: saved.Candidates, looked: saved.Looked,
			unasked: saved.Unasked, asker: saved.Asker.restore(), since: saved.Since,
		}
		for name, ids := range saved.Devices {
			for id, sequence := range ids {
				if l.holders[name][id] != nil || sequence < 0 || sequence > s.Sequence {
					return fmt.Errorf("device %s of %s is held twice or out of sequence", id, name)
				}
				l.give(a, name, id, sequence)
			}
		}
		restored = append(restored, a)
	}
	if err := l.restorePlan(s.Plan, restored); err != nil {
		return err
	}
	c.state.Store(&state{
		tree:   c.current().tree,
		ledger: l,
		last:   record{s.Last.Resource, s.Last.IDs, s.Last.Holders, s.Last.Known, s.Last.Refused},
	})
	return nil
}

// restorePlan takes a plan over unless it has expired, or claims to last longer than any does: then the clock
// was changed.
func (l *ledger) restorePlan(s *savedPlan, restored []*allocation) error {
	if s == nil {
		return nil
	}
	if left := s.Expires.Sub(l.now()); left <= 0 || left > planTTL {
		return nil
	}
	p := &plan{
		devices: s.Devices, holder: &allocation{looked: s.Looked, candidates: s.Pods},
		asker: s.Asker.restore(), after: s.After, expires: s.Expires,
	}
	if s.Holder >= len(restored) || s.Devices == nil {
		return errors.New("the plan has no holder or no devices")
	}
	if s.Holder >= 0 {
		p.holder = restored[s.Holder]
	}
	l.plan = p
	return nil
}

func (r savedResource) devices() ([]device.Device, error) {
	if r.Name == "" || (r.Kind != device.GPU && r.Kind != device.VF) {
		return nil, fmt.Errorf("resource %q of kind %q", r.Name, r.Kind)
	}
	devices := make([]device.Device, 0, len(r.Devices))
	for _, s := range r.Devices {
		address, err := topology.ParseAddress(s.Address)
		if err != nil {
			return nil, fmt.Errorf("device %s of %s: %w", s.ID, r.Name, err)
		}
		d := device.Device{ID: s.ID, Address: address} // not healthy until its plugin says so
		if s.NUMA != nil && *s.NUMA >= 0 {
			d.NUMA = topology.Node(*s.NUMA)
		}
		devices = append(devices, d)
	}
	return devices, nil
}

// reconcile releases what the ledger believes to be held and the kubelet's own record shows with nobody,
// except the newest allocation, with which the kubelet may not be done. PodResources alone does not tell a
// pod from the one before of the same name.
func (l *ledger) reconcile(now kubelet.Checkpoint) {
	newest := l.newest()
	for a := range l.allocations() {
		for name, ids := range a.devices {
			for id := range maps.Clone(ids) {
				if a != newest && len(now.Holders(name, []string{id})) == 0 {
					l.release(name, id)
				}
			}
		}
	}
}

// adopt fills an empty ledger with what the kubelet's record shows as held, by containers that are not known
// yet. Some of it can be free again (the kubelet does not write that down at once): the first look at
// PodResources tells.
func (l *ledger) adopt(now kubelet.Checkpoint) {
	containers := now.Containers()
	for _, container := range slices.Sorted(maps.Keys(containers)) {
		uid, _, _ := strings.Cut(container, "/")
		a := &allocation{unasked: true, uid: uid}
		for name, ids := range containers[container] {
			for _, id := range ids {
				l.give(a, name, id, 0)
			}
		}
	}
}

func (s checkpoint) encode() ([]byte, error) {
	ledger, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode checkpoint: %w", err)
	}
	content, err := json.Marshal(envelope{checkpointVersion, crc32.ChecksumIEEE(ledger), ledger})
	if err != nil {
		return nil, fmt.Errorf("encode checkpoint: %w", err)
	}
	return append(content, '\n'), nil
}

func decodeCheckpoint(content []byte) (checkpoint, error) {
	var e envelope
	if err := json.Unmarshal(content, &e); err != nil {
		return checkpoint{}, fmt.Errorf("parse checkpoint: %w", err)
	}
	if e.Version != checkpointVersion {
		return checkpoint{}, fmt.Errorf("parse checkpoint: it has version %d, this is %d",
			e.Version, checkpointVersion)
	}
	if sum := crc32.ChecksumIEEE(e.Ledger); sum != e.Checksum {
		return checkpoint{}, fmt.Errorf("parse checkpoint: checksum is %d, should be %d", sum, e.Checksum)
	}
	return decodeLedger(e.Ledger)
}

func decodeLedger(content []byte) (checkpoint, error) {
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	var s checkpoint
	if err := decoder.Decode(&s); err != nil {
		return checkpoint{}, fmt.Errorf("parse checkpoint: %w", err)
	}
	return s, nil
}
