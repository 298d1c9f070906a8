package ledger

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/topology"
)

// maxCandidates bounds the pods of which one may own an allocation, in what is saved: among more than these
// none is known.
const maxCandidates = 64

// Saved is a ledger as it is written down.
type Saved struct {
	Sequence    int             `json:"sequence"`
	Resources   []SavedResource `json:"resources"`
	Allocations []*Allocation   `json:"allocations"`
}

// SavedResource is a resource as it is written down.
type SavedResource struct {
	Name  string          `json:"name"`
	Kind  device.Kind     `json:"kind"`
	Saved json.RawMessage `json:"devices"` // all that were ever announced: a list of savedDevice
}

type savedDevice struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	NUMA    *int   `json:"numa,omitempty"`
}

// Save is the ledger as it is written down.
func (l *Ledger) Save() Saved {
	s := Saved{Sequence: l.sequence}
	for _, r := range l.Resources() {
		s.Resources = append(s.Resources, SavedResource{r.Name, r.Kind, r.saved})
	}
	for _, a := range l.Allocations() {
		s.Allocations = append(s.Allocations, a.Bounded())
	}
	return s
}

// Bounded is an allocation with no more pods than are written down.
func (a *Allocation) Bounded() *Allocation {
	next := *a
	if len(a.Candidates) > maxCandidates {
		next.Candidates = nil
	}
	next.Recipient = a.Recipient.Bounded()
	return &next
}

// Bounded is a recipient with no more pods than are written down.
func (r *Recipient) Bounded() *Recipient {
	if r == nil || len(r.Pods) <= maxCandidates {
		return r
	}
	next := *r
	next.Pods = r.Pods[:maxCandidates]
	return &next
}

// saveDevices is what an announcement leaves in the checkpoint. It is made once: the checkpoint is written
// far more often than devices are announced.
func saveDevices(devices []device.Device) json.RawMessage {
	saved := make([]savedDevice, 0, len(devices))
	for _, d := range devices {
		s := savedDevice{ID: d.ID, Address: d.Address.String()}
		if n, known := d.NUMA.Number(); known {
			s.NUMA = &n
		}
		saved = append(saved, s)
	}
	content, _ := json.Marshal(saved) // of strings and numbers
	return content
}

// Restore makes a ledger of what was saved. It fails where that contradicts itself.
func Restore(s Saved) (*Ledger, error) {
	l := New()
	l.sequence = s.Sequence
	for _, r := range s.Resources {
		devices, err := r.Devices()
		if err != nil {
			return nil, err
		}
		l.Announce(r.Name, r.Kind, device.Announcement{Devices: devices})
		l.Leave(r.Name)
	}
	known := map[int]bool{}
	for _, saved := range s.Allocations {
		if saved == nil || saved.ID <= 0 || known[saved.ID] {
			return nil, errors.New("an allocation has no ID, or that of another one")
		}
		known[saved.ID] = true
		a := *saved
		a.Devices = nil
		l.ids = max(l.ids, a.ID)
		for name, ids := range saved.Devices {
			for id, sequence := range ids {
				if l.holders[name][id] != nil || sequence < 0 || sequence > s.Sequence {
					return nil, fmt.Errorf("device %s of %s is held twice or out of sequence", id, name)
				}
				l.Give(&a, name, id, sequence)
			}
		}
	}
	return l, nil
}

// ByID finds an allocation that holds a device, nil for none.
func (l *Ledger) ByID(id int) *Allocation {
	for _, a := range l.Allocations() {
		if a.ID == id {
			return a
		}
	}
	return nil
}

// Devices are those of a saved resource. None of them is healthy until its plugin says so.
func (r SavedResource) Devices() ([]device.Device, error) {
	if r.Name == "" || (r.Kind != device.GPU && r.Kind != device.VF) {
		return nil, fmt.Errorf("resource %q of kind %q", r.Name, r.Kind)
	}
	var saved []savedDevice
	if err := json.Unmarshal(r.Saved, &saved); err != nil {
		return nil, fmt.Errorf("devices of %s: %w", r.Name, err)
	}
	devices := make([]device.Device, 0, len(saved))
	for _, s := range saved {
		address, err := topology.ParseAddress(s.Address)
		if err != nil {
			return nil, fmt.Errorf("device %s of %s: %w", s.ID, r.Name, err)
		}
		d := device.Device{ID: s.ID, Address: address}
		if s.NUMA != nil && *s.NUMA >= 0 {
			d.NUMA = topology.Node(*s.NUMA)
		}
		devices = append(devices, d)
	}
	return devices, nil
}
