// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
	"github.com/tandem-k8s/tandem/plugins/health"
	"github.com/tandem-k8s/tandem/topology"
)

// GPUs are the GPUs of a node, as discovered last.
type GPUs struct {
	backend Backend
	pulse   time.Duration
	health  *health.Monitor
	log     *slog.Logger

	found    Inventory        // by the last discovery without an error
	unread   system.Complaint // about GPUs
	unlinked system.Complaint // about links between GPUs
	notes    []string         // of the last discovery, so that each is logged once
	behind   bool             // the links were not read when GPUs changed last: they are read at the next look

	mu        sync.Mutex
	reading   Inventory           // the last discovery, without its devices
	resources map[string][]Device // sorted by ID: devices of the last discovery, and those that went last
	links     []topology.Link
	changed   system.Signal
}

// Discover finds the GPUs and starts nothing. Run repeats the discovery on every pulse (never for pulse 0),
// and on notifications of a Watcher.
func Discover(backend Backend, pulse time.Duration, log *slog.Logger) (*GPUs, error) {
	found, err := backend.Discover()
	if err != nil {
		return nil, err
	}
	links, err := backend.Links()
	if err != nil {
		return nil, err
	}
	g := &GPUs{backend: backend, pulse: pulse, log: log, links: links, found: found}
	g.reading = found.withoutDevices()
	g.resources, _ = mergeDevices(nil, found)
	g.reportNotes(found.Notes)
	return g, nil
}

// Heed makes the monitor judge the GPUs; to be called before Run.
func (g *GPUs) Heed(monitor *health.Monitor) {
	g.health = monitor
	g.judgeDevices(g.found.Resources) // to be watched
	monitor.Look()
	g.judgeAgain(false)
}

// judgeDevices returns devices with the health of their cards, and has these cards watched, and those of the
// devices that are gone: they may come back.
func (g *GPUs) judgeDevices(resources map[string][]Device) map[string][]Device {
	cards := map[topology.Address]bool{}
	for _, devices := range g.resources { // only this goroutine changes them
		for _, d := range devices {
			cards[d.Card] = true
		}
	}
	judged := make(map[string][]Device, len(resources))
	for name, devices := range resources {
		judged[name] = slices.Clone(devices)
		for i := range devices {
			d := &judged[name][i]
			cards[d.Card] = true
			switch verdict := g.health.Verdict(d.Card); verdict.State {
			case health.Failed:
				d.Fail(verdict.Reason)
			case health.Degraded:
				d.Degraded, d.Reason = true, cmp.Or(d.Reason, verdict.Reason)
			}
		}
	}
	g.health.Watch(cards)
	return judged
}

// Run repeats the discovery on every pulse, and on notifications of a Watcher, until ctx is done.
func (g *GPUs) Run(ctx context.Context) error {
	due := system.NewTrigger()
	work, working := errgroup.WithContext(ctx)
	if watcher, ok := g.backend.(Watcher); ok {
		work.Go(func() error { return watcher.Watch(working, due.Fire) })
	}
	work.Go(func() error { return g.health.Run(working, due.Fire) })
	work.Go(func() error {
		g.refreshWhenDue(working, due)
		return nil
	})
	return work.Wait()
}

func (g *GPUs) refreshWhenDue(ctx context.Context, due <-chan struct{}) {
	var pulse <-chan time.Time // nil without a pulse
	if g.pulse > 0 {
		ticker := time.NewTicker(g.pulse)
		defer ticker.Stop()
		pulse = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-pulse:
		case <-due:
		}
		g.discoverAgain()
	}
}

// discoverAgain repeats the discovery. If it fails, no device is removed, as that would not help pods that
// hold devices; the health of the cards counts.
func (g *GPUs) discoverAgain() {
	found, err := g.backend.Discover()
	if g.unread.IsNew(err) {
		g.log.Warn("GPUs not read; using the last known GPUs", "error", err)
	}
	if err != nil {
		g.judgeAgain(false)
		return
	}
	g.found = found
	g.reportNotes(found.Notes)
	g.judgeAgain(true)
}

// judgeAgain gives the devices of the last discovery the health that their cards have now. After a discovery
// it reads the links too, if devices have changed or the links were not read since.
func (g *GPUs) judgeAgain(discovered bool) {
	found := g.found
	found.Resources = g.judgeDevices(found.Resources)
	g.mu.Lock()
	merged, differences := mergeDevices(g.resources, found)
	links := g.links
	isReadOtherwise := !reflect.DeepEqual(g.reading, found.withoutDevices())
	g.mu.Unlock()
	wereBehind := g.behind
	if discovered && (len(differences) > 0 || g.behind) {
		newest, err := g.backend.Links()
		g.behind = err != nil
		if g.unlinked.IsNew(err) {
			g.log.Warn("links between GPUs not read; using the last known links", "error", err)
		}
		if err == nil {
			links = newest
		}
	}
	if len(differences) > 0 || isReadOtherwise || wereBehind && !g.behind {
		g.takeDevices(merged, differences, links)
	}
}

func (g *GPUs) takeDevices(merged map[string][]Device, differences []change, links []topology.Link) {
	reportChanges(g.log, differences)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.resources, g.links, g.reading = merged, links, g.found.withoutDevices()
	g.changed.Raise()
}

// reportChanges logs changes.
func reportChanges(log *slog.Logger, differences []change) {
	ofHealth := map[string]*health.Report{}
	for _, c := range differences {
		if c.what != "" {
			log.Warn("GPU changed", "resource", c.resource, "device", c.device, "change", c.what)
			continue
		}
		if ofHealth[c.resource] == nil {
			ofHealth[c.resource] = &health.Report{}
		}
		ofHealth[c.resource].Add(c.device, c.health)
	}
	for resource, changes := range ofHealth {
		changes.Log(log.With("resource", resource))
	}
}

// reportNotes logs the notes that the last discovery did not have.
func (g *GPUs) reportNotes(notes []string) {
	for _, note := range notes {
		if !slices.Contains(g.notes, note) {
			g.log.Warn("GPU discovery", "note", note)
		}
	}
	g.notes = notes
}

// latestDevices returns a resource's devices, the links, and a channel that is closed when either changes.
func (g *GPUs) latestDevices(resource string) ([]Device, []topology.Link, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.resources[resource], g.links, g.changed.Next()
}

// change is a changed device.
type change struct {
	resource, device string
	what             string         // "" for a change of the health
	health           health.Verdict // then the health now
}

// maxGone is the number of devices of a resource that stay known although others went after them: those of a
// node that is divided as finely as possible.
const maxGone = 64

func countDevices(devices map[string]Device, condition func(string, Device) bool) (n int) {
	for id, d := range devices {
		if condition(id, d) {
			n++
		}
	}
	return n
}

// mergeDevices adds a discovery to the known devices, without modifying either. A known device that was not
// found becomes unhealthy if it may still exist. A device that is gone stays known, for an Allocate in flight
// and for a kubelet that has not received the newer list yet, until other devices go and more than maxGone
// are known: MIG devices get new IDs whenever a GPU is repartitioned, and the kubelet's needs are in a list
// of its own (package deviceplugin).
func mergeDevices(known map[string][]Device, inventory Inventory) (map[string][]Device, []change) {
	found := inventory.Resources
	othersGo := othersGo(known, inventory)
	merged := make(map[string][]Device, len(found))
	var differences []change
	for resource := range found {
		merged[resource] = nil
	}
	for resource := range known {
		merged[resource] = nil
	}
	for resource := range merged {
		before := byID(known[resource])
		now := deviceplugin.Keep(before, withKnownMemory(before, found[resource]), func(d Device) Device {
			d.Healthy, d.Gone, d.Reason = false, d.Gone || !inventory.mayHide(d.Card), "not found"
			return d
		})
		isOld := func(id string, d Device) bool { return d.Gone && before[id].Gone }
		if othersGo && countDevices(now, isOld) > maxGone {
			maps.DeleteFunc(now, isOld)
		}
		merged[resource] = slices.SortedFunc(maps.Values(now), func(a, b Device) int {
			return cmp.Compare(a.ID, b.ID)
		})
		for _, d := range merged[resource] {
			if c, changed := findDifference(before, d); changed {
				c.resource, c.device = resource, d.ID
				differences = append(differences, c)
			}
		}
	}
	return merged, differences
}

// othersGo reports whether devices are gone since the last discovery.
func othersGo(known map[string][]Device, inventory Inventory) bool {
	for resource, devices := range known {
		found := byID(inventory.Resources[resource])
		if slices.ContainsFunc(devices, func(d Device) bool {
			_, there := found[d.ID]
			return !there && !d.Gone && !inventory.mayHide(d.Card)
		}) {
			return true
		}
	}
	return false
}

// findDifference returns the change of a device, without the names of resource and device; false for none.
func findDifference(before map[string]Device, now Device) (c change, changed bool) {
	was, known := before[now.ID]
	switch {
	case !known:
		c.what = "appeared"
	case was.verdictOf() != now.verdictOf():
		c.health = now.verdictOf()
	case !was.Gone && now.Gone:
		c.what = "gone"
	case was.Gone && !now.Gone:
		c.what = "there again"
	case was.Card != now.Card || was.NUMA != now.NUMA || was.Index != now.Index ||
		!slices.Equal(was.Nodes, now.Nodes):
		c.what = "moved"
	case !reflect.DeepEqual(was, now): // so that no field of a device can stay as it was first read
		c.what = "other properties"
	default:
		return c, false
	}
	return c, true
}

// verdictOf returns the health of a device, whichever source tells of it.
func (d Device) verdictOf() health.Verdict {
	switch {
	case !d.Healthy:
		return health.Verdict{State: health.Failed, Reason: d.Reason}
	case d.Degraded:
		return health.Verdict{State: health.Degraded, Reason: d.Reason}
	default:
		return health.Verdict{}
	}
}

// withKnownMemory returns the found devices of a resource. A card whose memory cannot be read now keeps the
// size that was read before, because the size of a card's memory does not change.
func withKnownMemory(before map[string]Device, found []Device) map[string]Device {
	devices := byID(found)
	for id, d := range devices {
		if was := before[id]; d.VRAM == 0 && was.Card == d.Card {
			d.VRAM = was.VRAM
			devices[id] = d
		}
	}
	return devices
}

func byID(devices []Device) map[string]Device {
	m := make(map[string]Device, len(devices))
	for _, d := range devices {
		m[d.ID] = d
	}
	return m
}
