// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/plugins/dra/claims"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/topology"
)

// holdersPause is the interval between looks at the kubelet's device checkpoint.
const holdersPause = 10 * time.Second

// holderView tracks devices without a claim: pods got them from a device plugin before the node changed to
// DRA. The source is the kubelet's device checkpoint, read by package holders. The checkpoint also contains
// ended pods until the kubelet next writes it, which may never happen on a node without device plugins; so
// the view tracks the ends of these pods.
type holderView struct {
	kubeletDir string
	log        *slog.Logger
	complaints *complaints
	recorded   *recordedPods // belongs to the goroutine that calls updateHolders

	last  kubelet.Reading[kubelet.Checkpoint] // the last read checkpoint
	found holders.Holders                     // at the last look
	// by name of the device's unit and by device ID, for people; nil before the first successful read. It
	// includes devices that the node lacks at the moment, because a device can appear between two reads.
	holders *system.Newest[map[string]string]
}

func newHolderView(config Config, complaints *complaints) *holderView {
	if config.Kubelet == nil {
		config.Kubelet = kubeletSockets{config.KubeletDir}
	}
	return &holderView{
		kubeletDir: config.KubeletDir, log: config.Log, complaints: complaints,
		recorded: &recordedPods{
			client: config.Client, kubelet: config.Kubelet, ownUID: config.PodUID, now: time.Now,
			pods: map[string]recordedPod{},
		},
		holders: &system.Newest[map[string]string]{},
	}
}

// errUnrecorded is the reason for publishing nothing before the checkpoint was read once.
var errUnrecorded = errors.New("it is not known which devices pods have from device plugins: the kubelet's " +
	"device checkpoint cannot be read")

// updateHolders reads the holders of all devices, and the ends of pods with a machine's devices.
func (h *holderView) updateHolders(ctx context.Context, machine pool.Machine) {
	sources, err := h.readSources(ctx, machine)
	if err != nil {
		return
	}
	h.found = holders.Find(sources).Holders
	before, held := h.holders.Get(), heldBy(h.found)
	if before == nil || !maps.Equal(held, before) {
		h.log.Info("read the devices that device plugins gave to pods", "devices", len(held))
		h.holders.Set(held)
	}
}

// readSources returns the sources of holders: the checkpoint, or the last one if it cannot be read. Without
// one the kubelet's list is the source: a checkpoint that cannot be read does not mean that no pod has
// devices.
func (h *holderView) readSources(ctx context.Context, machine pool.Machine) (holders.Sources, error) {
	recorded, err := kubelet.ReadCheckpoint(h.kubeletDir)
	if err == nil {
		h.last = kubelet.Read(recorded, nil)
	}
	isMissing := errors.Is(err, fs.ErrNotExist)
	if isMissing && !h.last.IsKnown() {
		err = nil // a kubelet without device plugins writes no checkpoint
	}
	h.complaints.reportResult("device checkpoint of the kubelet not read; using the last known holders", err)
	if !h.last.IsKnown() {
		view, err := h.listPods(ctx)
		switch {
		case isMissing && errors.Is(err, fs.ErrNotExist), err == nil && isMissing && len(view.Containers) == 0:
			h.last = kubelet.Read(kubelet.Checkpoint{}, nil) // no pod has devices
		case err != nil:
			h.complaints.reportResult("pods of the node not read; using the last known pods", err)
			return holders.Sources{}, err
		default:
			return holders.Sources{View: kubelet.Read(view, nil)}, nil
		}
	}
	sources := holders.Sources{
		Checkpoint: h.last, Before: h.found, Known: h.recorded.toldPods(), Life: kubelet.Life(h.kubeletDir),
	}
	all := holders.Find(sources).Holders
	err = h.recorded.updatePods(ctx, h.last, all, podsWith(all, listNames(machine)))
	h.complaints.reportResult("pods of the node not read; using the last known pods", err)
	sources.Pods = kubelet.Read(h.recorded.livingPods(), nil)
	return sources, nil
}

// listPods returns the pods of the kubelet with their devices. It returns an error for a list without any
// pod: the kubelet has just started, as the driver's own pod is missing.
func (h *holderView) listPods(ctx context.Context) (kubelet.View, error) {
	ctx, cancel := context.WithTimeout(ctx, recordedLimit)
	defer cancel()
	view, err := h.recorded.kubelet.List(ctx)
	if err == nil && len(view.Pods) == 0 {
		err = errors.New("list pods of the kubelet: the driver's own pod is not among them")
	}
	return view, err
}

// podsWith returns the UIDs of the holders of devices of the node, under any resource name: another vendor's
// plugin may have assigned the devices.
func podsWith(all holders.Holders, known map[string]bool) map[string]bool {
	pods := map[string]bool{}
	for _, h := range all {
		for _, ids := range h.Devices {
			if slices.ContainsFunc(ids, func(id string) bool { return known[topology.UnitOfID(id).Name] }) {
				pods[h.UID] = true
			}
		}
	}
	return pods
}

// heldBy returns the holders of devices, for people. A replica counts as its device.
func heldBy(found holders.Holders) map[string]string {
	held := map[string]string{}
	for _, h := range found {
		who := "a pod with UID " + h.UID
		if h.Pod.Name != "" {
			who = "pod " + h.Pod.Namespace + "/" + h.Pod.Name
		}
		for _, ids := range h.Devices {
			for _, id := range ids {
				held[topology.UnitOfID(id).Name] = who + ", by a device plugin"
			}
		}
	}
	return held
}

// listNames returns the names by which device plugins can have given a machine's devices to pods: the IDs of
// the devices, and the names of their units, such as the PCI address of a GPU with another ID.
func listNames(machine pool.Machine) map[string]bool {
	all := map[string]bool{}
	for _, g := range machine.GPUs {
		all[g.ID], all[g.Unit().Name] = true, true
	}
	for _, vf := range machine.VFs {
		all[vf.ID], all[vf.Unit().Name] = true, true
	}
	return all
}

// withHolders returns a machine with the holders of its devices.
func withHolders(machine pool.Machine, holders coordination.ClaimHolders) pool.Machine {
	if len(holders) == 0 {
		return machine
	}
	machine.GPUs, machine.VFs = slices.Clone(machine.GPUs), slices.Clone(machine.VFs)
	for i := range machine.GPUs {
		g := &machine.GPUs[i]
		g.Held = holders.Of(g.ID, g.Unit())
	}
	for i := range machine.VFs {
		vf := &machine.VFs[i]
		vf.Held = holders.Of(vf.ID, vf.Unit())
	}
	return machine
}

// maxRefused is the maximum number of recorded refusals.
const maxRefused = 64

// outcome is the result of preparing a claim.
type outcome struct {
	claims.Claim // with the pods for which it is reserved now
	Asked        time.Time
	Took         time.Duration
	Refused      string // reason for a refusal; "" if prepared
}

// owners records the results of preparing claims, for people. It is in memory only: results of an earlier
// process come from the API server.
type owners struct {
	mu      sync.Mutex
	given   map[types.UID]outcome
	refused []outcome // oldest first, each claim once
}

func newOwners() *owners { return &owners{given: map[types.UID]outcome{}} }

// recordOutcome records the result of preparing a claim.
func (o *owners) recordOutcome(
	claim *resourceapi.ResourceClaim, at time.Time, took time.Duration, err error,
) {
	one := outcome{Claim: claims.NewClaim(claim), Asked: at, Took: took}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refused = slices.DeleteFunc(o.refused, func(other outcome) bool { return other.UID == claim.UID })
	if err == nil {
		o.given[claim.UID] = one
		return
	}
	one.Refused = err.Error()
	o.refused = append(o.refused, one)
	o.refused = o.refused[max(0, len(o.refused)-maxRefused):]
}

// forgetClaim removes an unprepared claim.
func (o *owners) forgetClaim(uid types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.given, uid)
	o.refused = slices.DeleteFunc(o.refused, func(other outcome) bool { return other.UID == uid })
}

// outcomeOf returns the facts about a prepared claim, such as its pods.
func (o *owners) outcomeOf(c claims.Claim) outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	known, ok := o.given[c.UID]
	if ok {
		c.Pods = known.Pods
	}
	known.Claim = c
	return known
}

// lastRefusals returns the last refused claims, the newest last.
func (o *owners) lastRefusals() []outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.refused)
}

// learnPods records the present pods of a prepared claim: the kubelet does not call again for a further pod
// that shares the claim.
func (o *owners) learnPods(claim *resourceapi.ResourceClaim) {
	o.mu.Lock()
	defer o.mu.Unlock()
	known := o.given[claim.UID]
	known.Claim = claims.NewClaim(claim)
	o.given[claim.UID] = known
}

// firstPod returns the first pod of a claim by name, or "" if unknown.
func (o outcome) firstPod() string {
	if len(o.Pods) == 0 {
		return ""
	}
	return slices.MinFunc(o.Pods, func(a, b claims.Pod) int { return cmp.Compare(a.Name, b.Name) }).Name
}
