package admission

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// planTTL is how long a plan stands that nobody claims. The kubelet asks for the second half of a container
// within milliseconds of the first; an admission that fails in between leaves its plan behind.
const planTTL = 2 * time.Second

// resource is what its plugin announced of one resource name.
type resource struct {
	name    string
	kind    device.Kind
	devices map[string]device.Device
	saved   []savedDevice // the devices for the checkpoint; never changed
	links   []topology.Link
	joined  bool // the plugin is connected now
}

// allocation is what one container was given, as far as it is known.
type allocation struct {
	id         int                       // by which it is known while its devices change; 0 before it has any
	devices    map[string]map[string]int // resource → device ID → sequence of the Allocate that gave it
	owner      *kubelet.Container        // nil until PodResources has shown it
	candidates []kubelet.Pod             // while the owner is not known: the pods that it can be
	container  string                    // its name, once the kubelet's checkpoint has shown it
	uid        string                    // of its pod, likewise
	// the container that it was given to, nil where no source of intent told
	asker *asker
	// sequence of the first Allocate for the asker: what it has from before was its init container's
	since  int
	looked bool // PodResources was read before its first device was given
	// the kubelet had no choice for its first devices: they were all that was free on its nodes
	unasked bool
	// the kubelet has offered a device of it, and nothing told whether its container lives: see usable
	doubtful bool
	// its container ended while the kubelet was asking for another: see withheld
	ending bool
}

// progress tells whether the kubelet is done with a container. It decides who is asking: see observe.go.
type progress int

const (
	unknown  progress = iota
	open              // its other resources come next
	complete          // all its resources are allocated
)

// plan is our reservation for the halves of a request that have not been asked yet.
type plan struct {
	devices map[string][]string // by resource, in the order of the pairs
	holder  *allocation         // of what the container was given already; to be filled by its next Allocate
	asker   *asker              // the container, nil where no source of intent told
	pairs   []placement.Pair    // that all of it makes
	after   int                 // sequence of the newest Allocate when it was made
	expires time.Time
}

// others are the planned devices of all resources but one.
func (p *plan) others(name string) map[string][]string {
	others := maps.Clone(p.devices)
	delete(others, name)
	return others
}

// ledger is the one record of which device is whose.
type ledger struct {
	now       func() time.Time
	resources map[string]*resource
	holders   map[string]map[string]*allocation // resource → device ID → who has it; absent is free
	// grows with every question and Allocate: what was read before is of an older one
	version   int
	ids       int       // of allocations, the highest
	sequence  int       // of the newest Allocate
	allocated time.Time // when that was
	// whether it fulfilled a plan, so that the allocation's candidates are right
	foreseen bool
	plan     *plan
	seen     map[kubelet.Pod]bool       // the pods of the last look at PodResources
	apps     map[kubelet.Container]bool // and its containers: it shows all but init containers
	// the pods that were new when last some were: one of them is, or was last, being admitted
	arrived []kubelet.Pod
}

func newLedger(now func() time.Time) *ledger {
	return &ledger{
		now:       now,
		resources: map[string]*resource{},
		holders:   map[string]map[string]*allocation{},
		seen:      map[kubelet.Pod]bool{},
	}
}

// announce replaces what is known of a resource. A device that is announced no more stays while somebody
// holds it, unhealthy: the container lives on, and the kubelet must not see the device vanish when the plugin
// starts anew.
func (l *ledger) announce(name string, kind device.Kind, a device.Announcement) {
	r := &resource{
		name:    name,
		kind:    kind,
		devices: make(map[string]device.Device, len(a.Devices)),
		links:   a.Links,
		joined:  true,
	}
	if before := l.resources[name]; before != nil {
		for id, d := range before.devices {
			if d.Healthy = false; l.holders[name][id] != nil && len(r.devices) < MaxDevices {
				r.devices[id] = d
			}
		}
	}
	for _, d := range a.Devices {
		r.devices[d.ID] = d
	}
	r.saved = saveDevices(r.devices)
	l.resources[name] = r
}

// leave notes that a resource's plugin is gone. Its devices stay known: it usually comes back.
func (l *ledger) leave(name string) {
	if r := l.resources[name]; r != nil {
		left := *r
		left.joined = false
		l.resources[name] = &left
	}
}

// allocate records that the kubelet gave a container devices of a resource, and returns everything the
// container has. Found is the container where no plan tells, nil where no source of intent does either.
func (l *ledger) allocate(name string, ids []string, found *asker) *allocation {
	l.foreseen = l.planned(name, ids)
	a := l.holderFor(name, ids, found)
	a.container = "" // that of an init container, if another one takes over; the pod is the same
	if p := l.livePlan(); p != nil {
		if l.foreseen {
			found = p.asker
		}
		delete(p.devices, name) // fulfilled, or overruled
	}
	l.version++
	l.sequence++
	if found != nil {
		if a.asker != nil && !a.asker.is(found) {
			a.since = l.sequence
		}
		a.asker = found.lasting()
	}
	l.allocated = l.now()
	for _, id := range ids {
		l.give(a, name, id, l.sequence)
	}
	return a
}

// planned reports whether devices are those that the plan keeps of a resource.
func (l *ledger) planned(name string, ids []string) bool {
	p := l.livePlan()
	return p != nil && device.SameSet(p.devices[name], ids)
}

// holderFor finds the allocation that newly given devices belong to: that of the plan they fulfil; that of
// the container which a source of intent found; the newest one, if they were in it (an app container takes
// over from its init container); else a new one. What two new ones are of the same container, because the
// kubelet asked for neither half, the next look at PodResources shows.
func (l *ledger) holderFor(name string, ids []string, found *asker) *allocation {
	if l.planned(name, ids) {
		return l.plan.holder
	}
	newest := l.newest()
	if newest != nil && (l.isApp(newest) ||
		!slices.ContainsFunc(ids, func(id string) bool { return l.holders[name][id] == newest })) {
		newest = nil
	}
	if found != nil {
		held := l.holderOf(found, newest)
		if held.devices == nil {
			held.unasked, held.candidates = true, found.pods
		}
		return held
	}
	if newest != nil {
		return newest
	}
	return &allocation{unasked: true}
}

// isApp reports whether an allocation is known to be that of an app container. Only what an init container
// has goes to another container of its pod; what is given again was an app container's of a pod that is gone.
func (l *ledger) isApp(a *allocation) bool {
	if a.owner != nil {
		return true
	}
	for _, pod := range a.candidates {
		if !l.apps[kubelet.Container{Pod: pod, Name: a.container}] {
			return false
		}
	}
	return len(a.candidates) > 0
}

// give makes an allocation the holder of a device, whoever had it before.
func (l *ledger) give(a *allocation, name, id string, sequence int) {
	l.release(name, id)
	if l.holders[name] == nil {
		l.holders[name] = map[string]*allocation{}
	}
	if a.devices == nil {
		a.devices = map[string]map[string]int{}
	}
	if a.id == 0 {
		l.ids++
		a.id = l.ids
	}
	if a.devices[name] == nil {
		a.devices[name] = map[string]int{}
	}
	l.holders[name][id] = a
	a.devices[name][id] = sequence
}

// release makes a device free. Releasing a free device is no error.
func (l *ledger) release(name, id string) {
	a := l.holders[name][id]
	if a == nil {
		return
	}
	delete(l.holders[name], id)
	delete(a.devices[name], id)
	if len(a.devices[name]) == 0 {
		delete(a.devices, name)
	}
}

// drop releases all that an allocation has.
func (l *ledger) drop(a *allocation) {
	for name, ids := range a.devices {
		for id := range maps.Clone(ids) {
			l.release(name, id)
		}
	}
}

// allocations yields every allocation that holds a device, once.
func (l *ledger) allocations() map[*allocation]bool {
	all := map[*allocation]bool{}
	for _, holders := range l.holders {
		for _, a := range holders {
			all[a] = true
		}
	}
	return all
}

// check says what is wrong with a ledger, nil where nothing is: every device has one holder, which holds it.
func (l *ledger) check() error {
	for name, holders := range l.holders {
		for id, a := range holders {
			if _, ok := a.devices[name][id]; !ok {
				return fmt.Errorf("device %s of %s has a holder that does not hold it", id, name)
			}
		}
	}
	for a := range l.allocations() {
		for name, ids := range a.devices {
			if len(ids) == 0 {
				return fmt.Errorf("the allocation of %s keeps an empty list of %s", a.ownerName(), name)
			}
			for id := range ids {
				if l.holders[name][id] != a {
					return fmt.Errorf("device %s of %s is held by an allocation that is not its holder", id, name)
				}
			}
		}
	}
	return nil
}

// newest returns the allocation that got the newest Allocate, nil where we have seen none, or know it to be
// gone.
func (l *ledger) newest() *allocation {
	for a := range l.allocations() {
		if l.sequence > 0 && a.sequence() == l.sequence && !a.doubtful {
			return a
		}
	}
	return nil
}

// livePlan returns the plan unless it has expired.
func (l *ledger) livePlan() *plan {
	if l.plan == nil || !l.now().Before(l.plan.expires) {
		return nil
	}
	return l.plan
}

// isFree reports whether nobody holds a device, or nobody any more as far as the kubelet's offers tell.
func (l *ledger) isFree(name, id string) bool {
	a := l.holders[name][id]
	return a == nil || a.doubtful
}

// free lists a resource's healthy devices that are free, by address and ID; none of a resource that is not
// ours.
func (l *ledger) free(r *resource) []device.Device {
	if r == nil {
		return nil
	}
	var free []device.Device
	for id, d := range r.devices {
		if d.Healthy && l.isFree(r.name, id) {
			free = append(free, d)
		}
	}
	slices.SortFunc(free, device.Compare)
	return free
}

// ofKind lists the resources of a kind by name.
func (l *ledger) ofKind(kind device.Kind) []*resource {
	var found []*resource
	for _, name := range slices.Sorted(maps.Keys(l.resources)) {
		if r := l.resources[name]; r.kind == kind {
			found = append(found, r)
		}
	}
	return found
}

// heldOfKind lists what an allocation holds of a kind, by address and ID.
func (l *ledger) heldOfKind(a *allocation, kind device.Kind) []device.Device {
	if a == nil {
		return nil
	}
	var held []device.Device
	for name, ids := range a.devices {
		r := l.resources[name]
		if r == nil || r.kind != kind {
			continue
		}
		for id := range ids {
			held = append(held, r.device(id))
		}
	}
	slices.SortFunc(held, device.Compare)
	return held
}

// sameNodes reports whether devices can belong to the container of an allocation as far as NUMA tells: the
// Topology Manager gives all resources of a container that have TopologyInfo the same nodes, so sets with no
// node in common are of two containers.
func (l *ledger) sameNodes(a *allocation, name string, ids []string) bool {
	mine := l.nodes(name, ids)
	for other, held := range a.devices {
		theirs := l.nodes(other, slices.Collect(maps.Keys(held)))
		if len(mine) > 0 && len(theirs) > 0 && !intersect(mine, theirs) {
			return false
		}
	}
	return true
}

// nodes returns the NUMA nodes of devices as told to the kubelet, those unknown left out.
func (l *ledger) nodes(name string, ids []string) map[int]bool {
	nodes := map[int]bool{}
	if r := l.resources[name]; r != nil {
		for _, id := range ids {
			if node, known := r.devices[id].NUMA.Number(); known {
				nodes[node] = true
			}
		}
	}
	return nodes
}

// device returns a device by ID; one that was never announced, or no longer is, has an ID alone.
func (r *resource) device(id string) device.Device {
	if d, ok := r.devices[id]; ok {
		return d
	}
	return device.Device{ID: id}
}

// lacks reports whether an allocation has no device of a resource.
func (a *allocation) lacks(name string) bool { return len(a.devices[name]) == 0 }

// sequence is that of the newest device of an allocation; 0 where all were given before we watched.
func (a *allocation) sequence() int {
	newest := 0
	if a == nil {
		return newest
	}
	for name := range a.devices {
		newest = max(newest, a.newestOf(name))
	}
	return newest
}

// newestOf is the sequence of the newest device of a resource; 0 where there is none.
func (a *allocation) newestOf(name string) int {
	newest := 0
	for _, sequence := range a.devices[name] {
		newest = max(newest, sequence)
	}
	return newest
}

func intersect(a, b map[int]bool) bool {
	for n := range a {
		if b[n] {
			return true
		}
	}
	return false
}
