// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"fmt"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/tandem-k8s/tandem/dra/claims"
)

// errDrains is the answer of a driver that takes claims back alone.
var errDrains = errors.New("prepare claim: this node is in the mode of device plugins, and its driver " +
	"takes claims back alone: the pod has to go to another node")

// PrepareResourceClaims gives the containers of a pod's claims their devices. The claims of one call are
// those of one pod.
func (d *Driver) PrepareResourceClaims(
	ctx context.Context, asked []*resourceapi.ResourceClaim,
) (map[types.UID]kubeletplugin.PrepareResult, error) {
	if d.Drain {
		return nil, errDrains
	}
	began := time.Now()
	if err := d.learn(ctx); err != nil {
		return nil, err
	}
	state := d.newest.get().stateFor(asked)
	answers := d.preparer.Prepare(ctx, state, asked)
	took, failed := time.Since(began), 0
	for _, claim := range asked {
		err := answers[claim.UID].Err
		d.owners.asked(claim, began, took, err)
		log := d.Log.With("claim", claim.Namespace+"/"+claim.Name, "took", took)
		if err != nil {
			failed++
			log.Warn("prepare", "error", err)
		} else {
			log.Info("prepare", "devices", deviceNames(answers[claim.UID].Devices))
		}
	}
	if d.Observer != nil {
		d.Observer.Claims(Prepare, took, len(asked), failed)
	}
	if failed > 0 {
		poke(d.refused)
	}
	d.describe(state, asked)
	d.wake() // what claims have stays published
	return answers, nil
}

// learn asks the API server what it can do, where it has not told since the start: what devices stand for
// depends on it.
func (d *Driver) learn(ctx context.Context) error {
	if d.newest.get().Gates.Known {
		return nil
	}
	if err := d.gates.ask(ctx); err != nil {
		return fmt.Errorf("prepare claims: %w", err)
	}
	return d.anew(ctx)
}

func deviceNames(devices []kubeletplugin.Device) []string {
	names := make([]string, 0, len(devices))
	for _, device := range devices {
		names = append(names, device.DeviceName)
	}
	return names
}

// describe has it written into the status of claims what they were given, beside the answer to the kubelet.
func (d *Driver) describe(state claims.State, asked []*resourceapi.ResourceClaim) {
	prepared, err := d.preparer.Prepared()
	if err != nil {
		d.complain("the status of claims does not tell their devices", err)
		return
	}
	for _, claim := range asked {
		for _, c := range prepared {
			if c.UID == claim.UID && len(c.Devices) > 0 {
				d.statuses.write(claim, d.preparer.Status(state, c, metav1.Now()))
			}
		}
	}
}

// UnprepareResourceClaims takes the devices of claims back.
func (d *Driver) UnprepareResourceClaims(
	ctx context.Context, asked []kubeletplugin.NamespacedObject,
) (map[types.UID]error, error) {
	began := time.Now()
	answers := d.preparer.Unprepare(ctx, asked)
	took, failed := time.Since(began), 0
	for _, claim := range asked {
		log := d.Log.With("claim", claim.Namespace+"/"+claim.Name, "took", took)
		if err := answers[claim.UID]; err != nil {
			failed++
			log.Warn("unprepare", "error", err)
			continue
		}
		d.owners.forget(claim.UID)
		d.statuses.drop(claim.UID)
		log.Info("unprepare")
	}
	if d.Observer != nil {
		d.Observer.Claims(Unprepare, took, len(asked), failed)
	}
	d.wake()
	return answers, nil
}
