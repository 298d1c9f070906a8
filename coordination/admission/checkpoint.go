package admission

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/history"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/ledger"
	"github.com/tandem-k8s/tandem/coordination/store"
	"github.com/tandem-k8s/tandem/coordination/survive"
)

// checkpoint is a state as it is written down: enough to go on in the middle of an admission.
type checkpoint struct {
	ledger.Saved
	Seen    []kubelet.Pod `json:"seen,omitempty"`
	Arrived []kubelet.Pod `json:"arrived,omitempty"`
	Plan    *savedPlan    `json:"plan,omitempty"`
	Given   savedGiven    `json:"given"`

	Decisions []history.Saved `json:"decisions,omitempty"` // of the containers that live
}

type savedPlan struct {
	Devices map[string][]string `json:"devices"`
	Holder  *ledger.Allocation  `json:"holder"` // where it has devices only its ID counts
	After   int                 `json:"after"`
	Expires time.Time           `json:"expires"`
	Asker   *ledger.Recipient   `json:"asker,omitempty"`
}

type savedGiven struct {
	Newest   allocate `json:"newest"`
	Foreseen bool     `json:"foreseen,omitempty"`
	Refused  bool     `json:"refused,omitempty"`
}

// checkpoint is what is written down now.
func (c *Coordinator) checkpoint() checkpoint {
	saved := c.current().save(c.now())
	var living []history.Decision
	c.locked(func() { living = c.history.Living() })
	saved.Decisions = history.Save(living)
	return saved
}

// lives reports whether a container has a device.
func (c *Coordinator) lives(resource, id string) bool {
	return c.current().ledger.Holder(resource, id) != nil
}

// save is a state as it is written down.
func (s *state) save(now time.Time) checkpoint {
	c := checkpoint{
		Saved:   s.ledger.Save(),
		Seen:    slices.Collect(maps.Keys(s.looked.Pods)),
		Arrived: s.looked.Arrived,
		Given:   savedGiven{s.given.newest, s.given.foreseen, s.given.refused},
	}
	if p := s.plan.live(now); p != nil {
		c.Plan = &savedPlan{p.devices, p.holder.Bounded(), p.after, p.expires, p.asker.To().Bounded()}
	}
	return c
}

// restore takes a checkpoint over into a new coordinator. It fails, and changes nothing, where the checkpoint
// contradicts itself.
func (c *Coordinator) restore(s checkpoint) error {
	l, err := ledger.Restore(s.Saved)
	if err != nil {
		return err
	}
	plan, err := s.Plan.restore(l, c.now())
	if err != nil {
		return err
	}
	pods := map[kubelet.Pod]bool{}
	for _, pod := range s.Seen {
		pods[pod] = true
	}
	c.state.Store(&state{
		tree:   c.current().tree,
		ledger: l,
		looked: asking.Looked{Pods: pods, Arrived: s.Arrived},
		plan:   plan,
		given:  given{newest: s.Given.Newest, foreseen: s.Given.Foreseen, refused: s.Given.Refused},
	})
	if err := c.history.Restore(s.Decisions); err != nil {
		c.Log.Warn("forget earlier decisions: they are for people alone", "error", err)
	}
	return nil
}

// restore takes a plan over unless it has expired, or claims to last longer than any does: then the clock was
// changed.
func (s *savedPlan) restore(l *ledger.Ledger, now time.Time) (*plan, error) {
	if s == nil {
		return nil, nil
	}
	if left := s.Expires.Sub(now); left <= 0 || left > planTTL {
		return nil, nil
	}
	if s.Holder == nil || s.Devices == nil {
		return nil, errors.New("the plan has no holder or no devices")
	}
	p := &plan{devices: s.Devices, holder: s.Holder, after: s.After, expires: s.Expires}
	if held := l.ByID(s.Holder.ID); held != nil {
		p.holder = held
	} else {
		p.holder.ID, p.holder.Devices = 0, nil
	}
	if s.Asker != nil {
		p.asker = &asking.Asker{Recipient: *s.Asker}
	}
	return p, nil
}

// recover goes on where an earlier server ended: with its checkpoint, if there is one to trust, reconciled
// with the kubelet's own record. The first look at PodResources and the plugins that join do the rest.
func (c *Coordinator) recover() {
	saved, restored := c.store.Load()
	if restored {
		if err := survive.Do(c.Log, func() error { return c.restore(saved) }); err != nil {
			c.store.SetAside(err)
			restored = false
		}
	}
	now, err := c.Recorded()
	switch {
	case err != nil:
		c.Log.Info("go on without the kubelet's device checkpoint", "error", err)
	case restored:
		c.current().ledger.Reconcile(now, nil)
	default:
		c.current().ledger.Adopt(now)
	}
}

// Saved lists the devices of a resource in the ledger's checkpoint, none where it cannot be used.
func Saved(runDir, resource string) []device.Device {
	saved, err := store.Read[checkpoint](runDir)
	if err != nil {
		return nil
	}
	for _, r := range saved.Resources {
		if devices, err := r.Devices(); r.Name == resource && err == nil {
			return devices
		}
	}
	return nil
}
