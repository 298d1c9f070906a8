// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// How often it is looked who holds devices that a device plugin gave, and how long the kubelet may take to
// tell.
const (
	holdersPause = 10 * time.Second
	holdersLimit = 5 * time.Second
)

// watchHolders looks who holds devices without a claim until ctx is done, and whether claims have others than
// is published: another process of this driver may have prepared some.
func (d *Driver) watchHolders(ctx context.Context) {
	tick := time.NewTicker(holdersPause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		before, v := d.holders.get(), d.newest.get()
		d.findHolders(ctx)
		bound, inUse, err := d.preparer.Bound()
		if !maps.Equal(before, d.holders.get()) ||
			err == nil && (v.unread != nil || !maps.Equal(bound, v.Bound) || !maps.Equal(inUse, v.inUse)) {
			d.wake()
		}
	}
}

// findHolders finds out who holds which devices of the node, by device ID, for people: pods that a device
// plugin gave them before this node went over to DRA. The source is the kubelet's own record of devices, read
// by package holders. The record also has pods that have ended, until the kubelet next writes it, which on a
// node without device plugins can take for ever; so the driver asks which pods that is known of.
func (d *Driver) findHolders(ctx context.Context) {
	recorded, err := kubelet.ReadCheckpoint(d.KubeletDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.complain("who holds devices of device plugins is as it was known before", err)
		return
	}
	known := d.ids()
	if err := d.findRecordedPods(ctx, recorded, podsWith(recorded, known)); err != nil {
		d.complain("which pods of the kubelet's record have ended is as it was known before", err)
	}
	found, _ := holders.Find(holders.Sources{Recorded: &recorded, Pods: d.living()})
	before, held := d.holders.get(), heldBy(found, known)
	if before == nil || !maps.Equal(held, before) {
		d.Log.Info("devices that pods have from device plugins", "devices", len(held))
		d.holders.set(held)
	}
}

// podsWith are the pods of the kubelet's record that have devices of the node, by UID: of whatever resource,
// for another plugin than ours may have given them.
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

// podOf is the UID of the pod of a container in the kubelet's record.
func podOf(container string) string {
	uid, _, _ := strings.Cut(container, "/")
	return uid
}

// errUnrecorded is why nothing is published before the kubelet's record was read once.
var errUnrecorded = errors.New("it is not known which devices pods have from device plugins: the kubelet's " +
	"device checkpoint cannot be read")

// living are the pods of the record that are not known to have ended. Those without devices of the node are
// left out.
func (d *Driver) living() *holders.Pods {
	living := &holders.Pods{Names: map[string]kubelet.Pod{}, All: true}
	for uid, pod := range d.recorded {
		if !pod.Ended {
			living.Names[uid] = pod.Name
		}
	}
	return living
}

// heldBy says who holds devices of the node. A replica stands for its device.
func heldBy(found holders.Holders, known map[string]bool) map[string]string {
	held := map[string]string{}
	for _, h := range found {
		who := "a pod with UID " + h.UID
		if h.Pod.Name != "" {
			who = "pod " + h.Pod.Namespace + "/" + h.Pod.Name
		}
		for _, ids := range h.Devices {
			for _, id := range ids {
				if id = original(id); known[id] {
					held[id] = who + ", by a device plugin"
				}
			}
		}
	}
	return held
}

// original is the ID of a device of which an ID may be a replica.
func original(id string) string {
	id, _, _ = strings.Cut(id, "::")
	return id
}

// ids are the IDs of the node's devices.
func (d *Driver) ids() map[string]bool {
	ids := map[string]bool{}
	machine := d.newest.get().State.Machine
	if machine.Tree == nil { // at the start there is no view yet
		machine = d.machine
	}
	for _, g := range machine.GPUs {
		ids[g.ID] = true
	}
	for _, vf := range machine.VFs {
		ids[vf.ID] = true
	}
	return ids
}
