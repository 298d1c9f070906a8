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

// watchHolders looks who holds devices without a claim until ctx is done, and whether another process of this
// driver has bound others.
func (d *Driver) watchHolders(ctx context.Context) {
	tick := time.NewTicker(holdersPause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		before := d.holders.get()
		d.findHolders(ctx)
		bound, err := d.preparer.Bound()
		if !maps.Equal(before, d.holders.get()) || err == nil && !maps.Equal(bound, d.newest.get().Bound) {
			d.wake()
		}
	}
}

// findHolders finds out who holds which devices of the node, by device ID, for people: pods that a device
// plugin gave them before this node went over to DRA. The kubelet's checkpoint has them, and also those that
// are free and that it will only notice when it next looks; it is asked who lives, which makes it look. As
// that can make it give a device twice where it is allocating one (see package kubelet), it is asked only as
// long as there is anything in the checkpoint, which it then writes anew.
func (d *Driver) findHolders(ctx context.Context) {
	recorded, err := kubelet.ReadGranted(d.KubeletDir)
	if errors.Is(err, fs.ErrNotExist) {
		recorded, err = nil, nil
	}
	if err != nil {
		d.complain("who holds devices of device plugins is as it was known before", err)
		return
	}
	known, before := d.ids(), d.holders.get()
	holders := map[string]string{}
	for _, container := range recorded {
		uid, _, _ := strings.Cut(container.Container, "/")
		hold(holders, known, container.Devices, "a pod with UID "+uid)
	}
	if len(holders) > 0 {
		if living, err := d.living(ctx, known); err != nil {
			d.complain("devices are held by whom the kubelet's checkpoint names", err)
		} else {
			holders = d.absent.filter(holders, living, before)
		}
	}
	if !maps.Equal(holders, before) {
		d.Log.Info("devices that pods have from device plugins", "devices", len(holders))
		d.holders.set(holders)
	}
}

// patience is how many looks in a row have to show that nobody holds a device any more: a kubelet that starts
// knows its pods only once the API server has told it of them.
const patience = 3

// absent counts looks by device: those in a row in which a device that was held is held by nobody who lives.
type absent map[string]int

// filter are the devices of the kubelet's record that are held: by somebody who lives, or by somebody who did
// a short time ago. What was not held before, as at the start, is free at once where nobody lives who has it.
func (a absent) filter(recorded, living, before map[string]string) map[string]string {
	holders := map[string]string{}
	for id := range recorded {
		switch {
		case living[id] != "":
			holders[id] = living[id]
			delete(a, id)
		case before[id] != "" && a[id]+1 < patience:
			holders[id] = before[id]
			a[id]++
		default:
			delete(a, id)
		}
	}
	return holders
}

// living are the devices that living pods have from device plugins.
func (d *Driver) living(ctx context.Context, known map[string]bool) (map[string]string, error) {
	pods, err := kubelet.NewPodResources(d.KubeletDir)
	if err != nil {
		return nil, err
	}
	defer pods.Close()
	ctx, cancel := context.WithTimeout(ctx, holdersLimit)
	defer cancel()
	view, err := pods.List(ctx)
	if err != nil {
		return nil, err
	}
	holders := map[string]string{}
	for container, devices := range view.Containers {
		hold(holders, known, devices, "pod "+container.Namespace+"/"+container.Pod.Name)
	}
	return holders, nil
}

// hold notes who has devices, as far as the node has them: of whatever resource, for another plugin than ours
// may have given them. A replica stands for its device.
func hold(holders map[string]string, known map[string]bool, devices map[string][]string, who string) {
	for _, ids := range devices {
		for _, id := range ids {
			id, _, _ = strings.Cut(id, "::")
			if known[id] {
				holders[id] = who + ", by a device plugin"
			}
		}
	}
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
