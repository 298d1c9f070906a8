package dra

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"strings"
	"time"

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
// plugin gave them before this node went over to DRA. The kubelet's own record of devices is the source. It
// also has pods that have ended, until the kubelet next writes it, which on a node without device plugins can
// take for ever; so it is asked of which pods that is known.
func (d *Driver) findHolders(ctx context.Context) {
	recorded, err := kubelet.ReadGranted(d.KubeletDir)
	if errors.Is(err, fs.ErrNotExist) {
		recorded, err = nil, nil
	}
	if err != nil {
		d.complain("who holds devices of device plugins is as it was known before", err)
		return
	}
	recorded = having(recorded, d.ids())
	if err := d.findRecordedPods(ctx, recorded); err != nil {
		d.complain("which pods of the kubelet's record have ended is as it was known before", err)
	}
	if holders := holdersOf(recorded, d.recorded); !maps.Equal(holders, d.holders.get()) {
		d.Log.Info("devices that pods have from device plugins", "devices", len(holders))
		d.holders.set(holders)
	}
}

// having are the containers with their devices as far as the node has these: of whatever resource, for
// another plugin than ours may have given them. A replica stands for its device.
func having(recorded []kubelet.Granted, known map[string]bool) (ours []kubelet.Granted) {
	for _, container := range recorded {
		devices := map[string][]string{}
		for resource, ids := range container.Devices {
			for _, id := range ids {
				if original, _, _ := strings.Cut(id, "::"); known[original] {
					devices[resource] = append(devices[resource], id)
				}
			}
		}
		if len(devices) > 0 {
			ours = append(ours, kubelet.Granted{Container: container.Container, Devices: devices})
		}
	}
	return ours
}

// holdersOf says who holds devices by the kubelet's record: every container in it whose pod is not known to
// have ended.
func holdersOf(recorded []kubelet.Granted, pods map[string]recordedPod) map[string]string {
	holders := map[string]string{}
	for _, container := range recorded {
		uid := podUID(container)
		who, pod := "a pod with UID "+uid, pods[uid]
		if pod.Ended {
			continue
		}
		if pod.Name.Name != "" {
			who = "pod " + pod.Name.Namespace + "/" + pod.Name.Name
		}
		for _, ids := range container.Devices {
			for _, id := range ids {
				id, _, _ = strings.Cut(id, "::")
				holders[id] = who + ", by a device plugin"
			}
		}
	}
	return holders
}

func podUID(container kubelet.Granted) string {
	uid, _, _ := strings.Cut(container.Container, "/")
	return uid
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
