// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/dra/inventory"
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
	recorded   *recordedPods // belongs to the goroutine that calls update

	// by device ID, for people; nil before the first successful read. It includes devices that the node lacks at
	// the moment, because a device can appear between two reads.
	holders *latest[map[string]string]
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
		holders: newLatest(map[string]string(nil)),
	}
}

// errUnrecorded is the reason for publishing nothing before the checkpoint was read once.
var errUnrecorded = errors.New("it is not known which devices pods have from device plugins: the kubelet's " +
	"device checkpoint cannot be read")

// update reads the holders of all devices in the checkpoint, and the ends of pods with a machine's devices.
// It reports whether the holders have changed.
func (h *holderView) update(ctx context.Context, machine inventory.Machine) (changed bool) {
	recorded, err := kubelet.ReadCheckpoint(h.kubeletDir)
	if errors.Is(err, fs.ErrNotExist) && len(h.holders.get()) == 0 {
		err = nil // a kubelet without device plugins writes no checkpoint
	}
	h.complaints.report("device checkpoint of the kubelet not read; using the last known holders", err)
	if err != nil {
		return false
	}
	err = h.recorded.update(ctx, recorded, podsWith(recorded, deviceIDs(machine)))
	h.complaints.report("pods of the node not read; using the last known pods", err)
	found, _ := holders.Find(holders.Sources{Recorded: &recorded, Pods: h.recorded.living()})
	before, held := h.holders.get(), heldBy(found)
	if before != nil && maps.Equal(held, before) {
		return false
	}
	h.log.Info("read the devices that device plugins gave to pods", "devices", len(held))
	h.holders.set(held)
	return !maps.Equal(held, before)
}

// podsWith returns the UIDs of pods with devices of the node in the checkpoint, under any resource name:
// another vendor's plugin may have assigned the devices.
func podsWith(recorded kubelet.Checkpoint, known map[string]bool) map[string]bool {
	pods := map[string]bool{}
	for container, devices := range recorded.Containers() {
		for _, ids := range devices {
			if slices.ContainsFunc(ids, func(id string) bool { return known[original(id)] }) {
				pods[podOf(container)] = true
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
				held[original(id)] = who + ", by a device plugin"
			}
		}
	}
	return held
}

// original returns the device ID of a replica; other IDs remain as they are.
func original(id string) string {
	id, _, _ = strings.Cut(id, "::")
	return id
}

// deviceIDs returns the IDs of a machine's devices.
func deviceIDs(machine inventory.Machine) map[string]bool {
	ids := map[string]bool{}
	for _, g := range machine.GPUs {
		ids[g.ID] = true
	}
	for _, vf := range machine.VFs {
		ids[vf.ID] = true
	}
	return ids
}

// withHolders returns a machine with the holders of its devices.
func withHolders(machine inventory.Machine, holders map[string]string) inventory.Machine {
	if len(holders) == 0 {
		return machine
	}
	machine.GPUs, machine.VFs = slices.Clone(machine.GPUs), slices.Clone(machine.VFs)
	for i := range machine.GPUs {
		machine.GPUs[i].Held = holders[machine.GPUs[i].ID]
	}
	for i := range machine.VFs {
		machine.VFs[i].Held = holders[machine.VFs[i].ID]
	}
	return machine
}
