// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/system"
)

const (
	// withholdPause is the interval between two reads of the kubelet's checkpoint.
	withholdPause = 5 * time.Second
	// withholdTimeout is the time for the checkpoint, and for a source of pods that may not be connected yet.
	// The kubelet does not wait meanwhile, and a list before the answer offers what containers have.
	withholdTimeout = time.Second
)

// withholder finds the devices of this plugin that must not be assigned now: devices of claims, and devices
// that a container has under another resource name, which the kubelet would assign a second time. For the
// kubelet they are unhealthy meanwhile. While the checkpoint or the pods are unknown, the last known holders
// stay.
type withholder struct {
	claims   *claimWatch // nil for none
	recorded func() (kubelet.Checkpoint, error)
	pods     func(context.Context) (intent.Answer, error)
	life     func() string // identifies the running kubelet; "" if unknown
	log      *slog.Logger

	looking chan struct{} // full during a look, which reads and may wait
	found   holders.Holders
	ended   map[string]bool          // pods, by UID
	absent  map[string]bool          // pods of an earlier kubelet that are not listed yet, by UID
	told    map[string]holders.Known // pods in lists, by UID
	seen    kubelet.Identity         // of the checkpoint at the last look
	shared  bool                     // found has an offered device under another name, also of an ended pod
	unread  system.Complaint

	mu      sync.Mutex
	offered device.Resources                  // of this plugin
	held    map[kubelet.Device]kubelet.Device // to the device that the holder got
	changed map[string]*system.Signal         // by resource
}

// newWithholder returns a withholder that has read nothing.
func newWithholder(c *Config, pods func(context.Context) (intent.Answer, error)) *withholder {
	life := func() string { return kubelet.Life(c.KubeletDir) }
	if c.PodResources != nil {
		life = c.PodResources.Life
	}
	return &withholder{
		claims: c.claims, pods: pods, life: life, log: c.Log, ended: map[string]bool{},
		offered: device.Resources{}, changed: map[string]*system.Signal{}, looking: make(chan struct{}, 1),
		recorded: system.BoundRead(c.Log, withholdTimeout, kubelet.NewCheckpointReader(c.KubeletDir).Read),
	}
}

// withhold returns the devices of a resource, as unhealthy if they must not be assigned now, and a channel
// that is closed after the next change of this condition.
func (w *withholder) withhold(
	resource string, kind device.Kind, devices []device.Device,
) (all []device.Device, changed <-chan struct{}) {
	w.mu.Lock()
	w.offered = maps.Clone(w.offered)
	w.offered[resource] = device.NewResource(resource, kind, devices)
	if w.changed[resource] == nil {
		w.changed[resource] = &system.Signal{}
	}
	w.mu.Unlock()
	w.look(true)
	w.mu.Lock()
	changed, elsewhere := w.changed[resource].Next(), w.held
	w.mu.Unlock()
	var claims ClaimHolders
	if w.claims != nil {
		claims = w.claims.newest.Get()
	}
	for _, d := range devices {
		_, held := elsewhere[kubelet.Device{Resource: resource, ID: d.ID}]
		if held || claims.Has(d.ID, d.Complete().Unit) {
			d = d.Withhold()
		}
		all = append(all, d)
	}
	return all, changed
}

// run looks for changes until ctx is done.
func (w *withholder) run(ctx context.Context) {
	tick := time.NewTicker(withholdPause)
	defer tick.Stop()
	var freed <-chan struct{}
	if w.claims != nil {
		_, freed = w.claims.newest.Watch()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.look(false)
		case <-freed:
			_, freed = w.claims.newest.Watch()
			w.raiseAll()
		}
	}
}

// raise makes the plugin list the devices of a resource again.
func (w *withholder) raise(resource string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if changed := w.changed[resource]; changed != nil {
		changed.Raise()
	}
}

// raiseAll makes the plugin list the devices of all resources again.
func (w *withholder) raiseAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, changed := range w.changed {
		changed.Raise()
	}
}

// look is lookAt, and keeps the last known holders after a panic.
func (w *withholder) look(offerIsNew bool) {
	_ = system.Survive(w.log, func() error {
		w.lookAt(offerIsNew)
		return nil
	})
}

// lookAt reads the kubelet's checkpoint and, if a device has a holder under another name, the node's pods.
// Unless the offer is new, an unchanged checkpoint without such a device needs no further look.
func (w *withholder) lookAt(offerIsNew bool) {
	w.looking <- struct{}{}
	defer func() { <-w.looking }()
	recorded, err := w.recorded()
	if w.unread.IsNew(err) && !errors.Is(err, fs.ErrNotExist) { // missing for a kubelet without devices so far
		w.log.Warn("kubelet's device checkpoint not read; devices that containers have under another name are "+
			"those known last, and devices that are gone stay listed", "error", err)
	}
	if err != nil {
		return
	}
	w.mu.Lock()
	offered, before := w.offered, w.held
	w.mu.Unlock()
	if !offerIsNew && !w.shared && recorded.Identity == w.seen {
		return
	}
	w.seen = recorded.Identity
	life := w.life() // a kubelet that has written the checkpoint is seen
	w.found = holders.Find(holders.Sources{
		Checkpoint: kubelet.Read(recorded, nil), Before: without(w.found, w.ended), Known: w.told, Life: life,
	}).Holders
	held := heldElsewhere(w.found, offered)
	w.shared = len(held) > 0
	if w.shared {
		w.readEnds(life)
		held = heldElsewhere(without(without(w.found, w.ended), w.absent), offered)
	}
	if maps.Equal(held, before) {
		return
	}
	for d, as := range held {
		if before[d] != as {
			w.log.Warn("withholding a device that a container has under another name", "resource", d.Resource,
				"device", d.ID, "as", as.Resource+" "+as.ID)
		}
	}
	w.mu.Lock()
	w.held = held
	w.mu.Unlock()
	w.raiseAll()
}

// without returns the holders except those of some pods.
func without(all holders.Holders, pods map[string]bool) (left holders.Holders) {
	for _, h := range all {
		if !pods[h.UID] {
			left = append(left, h)
		}
	}
	return left
}

// readEnds reads which pods have ended, by the kubelet's own list. A listed pod has not: a static pod comes
// back with the same UID, and gets the devices that it had without another checkpoint. Of a pod of an earlier
// kubelet, which the checkpoint lacks, nothing but the list shows that it lives: a kubelet that has just
// started adds its pods one by one, and an absent pod holds nothing until the list has it.
func (w *withholder) readEnds(kubeletLife string) {
	ctx, cancel := context.WithTimeout(context.Background(), withholdTimeout)
	defer cancel()
	answer, err := w.pods(ctx)
	if err != nil {
		return
	}
	life := kubeletLife
	if w.life() != life { // a kubelet has started meanwhile
		life = ""
	}
	listed := admission.PodsOf(answer)
	ended, absent, told := map[string]bool{}, map[string]bool{}, map[string]holders.Known{}
	for _, h := range w.found {
		before, wasTold := w.told[h.UID]
		_, now := listed.Names[h.UID]
		ended[h.UID] = !now && (w.ended[h.UID] || listed.Lack(h.UID, life, before))
		absent[h.UID] = !now && h.Life != kubeletLife
		if now {
			told[h.UID] = holders.Known{Told: true, Life: life}
		} else if wasTold {
			told[h.UID] = before
		}
	}
	w.ended, w.absent, w.told = ended, absent, told
}

// heldElsewhere returns the offered devices with a holder under another name.
func heldElsewhere(found holders.Holders, offered device.Resources) map[kubelet.Device]kubelet.Device {
	held := map[kubelet.Device]kubelet.Device{}
	units := found.ByUnit(offered.UnitOf)
	for _, r := range offered {
		for id := range r.Devices {
			if other, elsewhere := units.Elsewhere(r.Name, id); elsewhere {
				held[kubelet.Device{Resource: r.Name, ID: id}] = other.Device
			}
		}
	}
	return held
}
