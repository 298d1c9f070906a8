package admission

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination/asking"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/history"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/resources"
	"github.com/tandem-k8s/tandem/coordination/store"
	"github.com/tandem-k8s/tandem/coordination/survive"
)

// kept is what the next server reads: where devices are, for a plugin that starts anew and no longer finds
// one; the Allocates that the kubelet's records do not tell of yet; and decisions, for people.
type kept struct {
	Resources []resources.Saved        `json:"resources"`
	Allocates []holders.Allocate       `json:"allocates,omitempty"`
	Open      *keptContainer           `json:"open,omitempty"`
	Plan      *keptPlan                `json:"plan,omitempty"`
	Seen      keptSeen                 `json:"seen"`
	Known     map[string]holders.Known `json:"known,omitempty"`
	Decisions []history.Saved          `json:"decisions,omitempty"` // of the containers that live
}

// keptContainer is the container that got the newest Allocate. It counts while the kubelet's checkpoint is
// still that of this Allocate.
type keptContainer struct {
	Recorded kubelet.Identity   `json:"recorded"`
	Source   intent.Source      `json:"source,omitempty"` // "" where none told
	UID      string             `json:"uid,omitempty"`
	Owner    *kubelet.Container `json:"owner,omitempty"`
	Exact    bool               `json:"exact,omitempty"`
	Requests map[string]int     `json:"requests,omitempty"`
	Align    intent.Alignment   `json:"alignment,omitempty"`
	Pods     []kubelet.Pod      `json:"pods,omitempty"`
	Devices  kubelet.Devices    `json:"devices"`
	Newest   string             `json:"newest,omitempty"`
	Looked   bool               `json:"looked,omitempty"`
	Guessed  bool               `json:"guessed,omitempty"`
	Shown    bool               `json:"shown,omitempty"`
	Refused  bool               `json:"refused,omitempty"`
}

// keptPlan is what is planned for the container that asks.
type keptPlan struct {
	Devices   map[string][]string `json:"devices"`
	Asked     string              `json:"asked"`
	Container *keptContainer      `json:"container"`
	Follows   bool                `json:"follows,omitempty"` // the container is Open
	Expires   time.Time           `json:"expires"`
}

// keptSeen is what the last look has shown.
type keptSeen struct {
	Looked  bool          `json:"looked"`
	Life    string        `json:"life"`
	Pods    []kubelet.Pod `json:"pods,omitempty"`
	Arrived []kubelet.Pod `json:"arrived,omitempty"`
}

// maxPods bounds the pods of which one may own a container, in what is written down.
const maxPods = 64

// kept is what is written down now.
func (c *Coordinator) kept() kept {
	s := c.current()
	k := kept{
		Resources: s.resources.Save(), Allocates: s.allocates, Open: keep(s.given.container), Known: s.known,
		Seen: keptSeen{s.seen.Looked, s.seen.Life, slices.Collect(maps.Keys(s.seen.Pods)), s.seen.Arrived},
	}
	if k.Open != nil {
		k.Open.Recorded, k.Open.Refused = s.given.recorded, s.given.refused
	}
	if p := s.plan.live(c.now()); p != nil {
		follows := s.given.container != nil && p.container.ID == s.given.container.ID
		k.Plan = &keptPlan{p.devices, p.asked, keep(&p.container), follows, p.expires}
	}
	var living []history.Decision
	c.locked(func() { living = c.history.Living() })
	k.Decisions = history.Save(living)
	return k
}

func keep(c *asking.Container) *keptContainer {
	if c == nil {
		return nil
	}
	k := &keptContainer{
		Owner: c.Owner, Devices: c.Devices, Newest: c.Newest, Pods: c.Pods[:min(len(c.Pods), maxPods)],
		Looked: c.Looked, Guessed: c.Guessed, Shown: c.Shown,
	}
	if a := c.Asker; a != nil {
		owner := a.Container()
		k.Source, k.UID, k.Owner, k.Exact, k.Requests, k.Align = a.Source, a.UID, &owner, a.Exact, a.Requests,
			a.Alignment
	}
	return k
}

func (k *keptContainer) restore() *asking.Container {
	c := &asking.Container{
		Pods: k.Pods, Devices: k.Devices, Newest: k.Newest, Looked: k.Looked, Guessed: k.Guessed, Shown: k.Shown,
	}
	if k.Source == "" || k.Owner == nil {
		c.Owner = k.Owner
		return c
	}
	c.Asker = &asking.Asker{
		Source: k.Source, Pod: k.Owner.Pod, UID: k.UID, Name: k.Owner.Name, Requests: k.Requests,
		Alignment: k.Align, Exact: k.Exact, Pods: k.Pods,
	}
	return c
}

// restore takes over what an earlier server wrote down, into a new coordinator. It fails, and changes
// nothing, where that contradicts itself.
func (c *Coordinator) restore(k kept) error {
	set, err := resources.Restore(k.Resources)
	if err != nil {
		return err
	}
	if n := len(k.Allocates); n > maxAllocates {
		return fmt.Errorf("%d Allocates, more than %d", n, maxAllocates)
	}
	next := c.current().clone()
	next.resources, next.allocates = set, k.Allocates
	next.hold(nil)
	if k.Open != nil {
		next.ids, next.sequence = 1, 1
		next.given = given{container: k.Open.restore(), recorded: k.Open.Recorded, refused: k.Open.Refused}
		next.given.container.ID = 1
		next.given.devices = maps.Clone(k.Open.Devices)
	}
	next.plan = k.Plan.restore(c.now())
	next.known = k.Known
	next.seen = k.Seen.restore()
	next.ids = 2
	c.state.Store(next)
	if err := c.history.Restore(k.Decisions); err != nil {
		c.Log.Warn("forget earlier decisions: they are for people alone", "error", err)
	}
	return nil
}

func (k keptSeen) restore() asking.Seen {
	seen := asking.Seen{Looked: k.Looked, Life: k.Life, Arrived: k.Arrived, Pods: map[kubelet.Pod]bool{}}
	for _, pod := range k.Pods {
		seen.Pods[pod] = true
	}
	return seen
}

// restore takes a plan over unless it has expired, or claims to last longer than any does: then the clock was
// changed.
func (k *keptPlan) restore(now time.Time) *plan {
	if k == nil || k.Container == nil {
		return nil
	}
	if left := k.Expires.Sub(now); left <= 0 || left > planTTL {
		return nil
	}
	p := &plan{devices: k.Devices, asked: k.Asked, container: *k.Container.restore(), expires: k.Expires}
	if p.container.ID = 2; k.Follows {
		p.container.ID = 1
	}
	p.after = 1
	return p
}

// recover goes on where an earlier server ended. Who holds what the kubelet's own record tells.
func (c *Coordinator) recover() {
	if saved, ok := c.store.Load(); ok {
		if err := survive.Do(c.Log, func() error { return c.restore(saved) }); err != nil {
			c.store.SetAside(err)
		}
	}
	c.readHolders()
}

// readHolders finds who holds what by the kubelet's own record alone, for a server that starts.
func (c *Coordinator) readHolders() {
	s := c.current().clone()
	sources := holders.Sources{Allocates: s.allocates, Known: s.known}
	if now, err := c.Recorded(); err == nil {
		sources.Recorded = &now
	} else {
		c.Log.Info("go on without the kubelet's device checkpoint", "error", err)
	}
	var found holders.Holders
	found, s.allocates = holders.Find(sources)
	s.hold(found)
	c.state.Store(s)
}

// lives reports whether a container has a device, for the history.
func (c *Coordinator) lives(resource, id string) bool {
	return !c.current().books().isFree(resource, id)
}

// Saved lists the devices of a resource that an earlier server has written down, none where that cannot be
// used.
func Saved(runDir, resource string) (devices []device.Device) {
	saved, err := store.Read[kept](runDir)
	if err != nil {
		return nil
	}
	set, err := resources.Restore(saved.Resources)
	if err != nil || set[resource] == nil {
		return nil
	}
	return set[resource].Ordered()
}
