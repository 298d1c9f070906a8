// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/plugins/dra/claims"
)

// The kubelet assumes unknown health of a device after the lease; the driver reports well before.
const (
	healthLease = 60 * time.Second
	healthPause = 20 * time.Second
)

// healthReporter reports the health of devices to the kubelet.
type healthReporter struct {
	config     Config
	complaints *complaints
	preparer   *claims.Preparer
	newest     *system.Newest[*view]
}

// WatchHealthStatus reports the health of all devices to the kubelet, after each change and periodically,
// until ctx is done.
func (h *healthReporter) WatchHealthStatus(
	ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport,
) error {
	if h.config.Drain { // devices are not scanned
		return kubeletplugin.ErrHealthNotSupported
	}
	again := time.NewTicker(healthPause)
	defer again.Stop()
	for {
		v, changed := h.newest.Watch()
		report := kubeletplugin.DeviceHealthReport{Devices: h.health(v)}
		select {
		case <-ctx.Done():
			return nil
		case reports <- report:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-again.C:
		}
	}
}

// health returns the health of every published device, and of the devices of claims: of those that containers
// have, which can be others than those that the name stands for.
func (h *healthReporter) health(v *view) []kubeletplugin.DeviceHealth {
	now := time.Now()
	told := map[string]kubeletplugin.DeviceHealth{}
	tell := func(name string, parts []string) {
		health := kubeletplugin.DeviceHealth{
			PoolName: h.config.NodeName, DeviceName: name, Health: kubeletplugin.HealthStatusHealthy,
			LastUpdated: now, HealthCheckTimeout: healthLease, Message: v.State.Machine.Failure(parts),
		}
		if health.Message != "" {
			health.Health = kubeletplugin.HealthStatusUnhealthy
		}
		told[name] = health
	}
	for name, device := range v.State.Pool.Devices {
		tell(name, slices.Concat(device.GPUs, device.VFs))
	}
	prepared, err := h.preparer.Prepared()
	h.complaints.report("health of the devices of claims not reported", err)
	for _, claim := range prepared {
		for _, given := range claim.Devices {
			if _, known := told[given.Device]; !known || !given.Admin {
				tell(given.Device, slices.Concat(given.GPUs, given.VFs))
			}
		}
	}
	return slices.SortedFunc(maps.Values(told), func(a, b kubeletplugin.DeviceHealth) int {
		return cmp.Compare(a.DeviceName, b.DeviceName)
	})
}

// tellUnsound forwards the unsound devices of claims periodically until ctx is done.
func (t *teller) tellUnsound(ctx context.Context, to func([]coordination.Unsound)) {
	coordination.LookForUnsound(ctx, func() {
		if list, known := t.unsound(); known {
			to(list)
		}
	})
}

// unsound returns the unsound devices of the present view with a claim's pod; false if the claims are
// unknown.
func (t *teller) unsound() (list []coordination.Unsound, known bool) {
	prepared, err := t.preparer.Prepared()
	if err != nil {
		return nil, false // Status reports the error
	}
	uids := map[kubelet.Pod]string{}
	for _, c := range prepared {
		o := t.owners.of(c)
		for _, pod := range o.Pods {
			uids[kubelet.Pod{Namespace: o.Namespace, Name: pod.Name}] = string(pod.UID)
		}
	}
	return coordination.UnsoundOf(t.resources(t.newest.Get()), uids), true
}
