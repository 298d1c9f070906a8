// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/tandem-k8s/tandem/dra/claims"
	"github.com/tandem-k8s/tandem/dra/pool"
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
	newest     *latest[*view]
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
		v, changed := h.newest.watch()
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

// health returns the health of every published device, and of unpublished devices of claims.
func (h *healthReporter) health(v *view) []kubeletplugin.DeviceHealth {
	causes := map[string]string{}
	for _, g := range v.State.Machine.GPUs {
		if !g.Healthy {
			causes[g.ID] = strings.TrimSuffix("GPU "+g.ID+" is unhealthy: "+g.Reason, ": ")
		}
	}
	for _, vf := range v.State.Machine.VFs {
		if vf.Fault != "" {
			causes[vf.ID] = "VF " + vf.ID + ": " + vf.Fault
		}
	}
	now := time.Now()
	told := map[string]kubeletplugin.DeviceHealth{}
	tell := func(name, cause string) {
		health := kubeletplugin.DeviceHealth{
			PoolName: h.config.NodeName, DeviceName: name, Health: kubeletplugin.HealthStatusHealthy,
			LastUpdated: now, HealthCheckTimeout: healthLease, Message: cause,
		}
		if cause != "" {
			health.Health = kubeletplugin.HealthStatusUnhealthy
		}
		told[name] = health
	}
	for name, device := range v.State.Pool.Devices {
		tell(name, cause(device, causes))
	}
	prepared, err := h.preparer.Prepared()
	h.complaints.report("health of unpublished devices not reported", err)
	for _, claim := range prepared {
		for _, given := range claim.Devices {
			if _, published := v.State.Pool.Devices[given.Device]; published {
				continue
			}
			if other, there := v.others[given.Device]; there {
				tell(given.Device, cause(other, causes))
			} else {
				tell(given.Device, "the node no longer has it")
			}
		}
	}
	return slices.SortedFunc(maps.Values(told), func(a, b kubeletplugin.DeviceHealth) int {
		return cmp.Compare(a.DeviceName, b.DeviceName)
	})
}

// cause returns the reason why a device is unhealthy; "" if it is healthy.
func cause(device pool.Device, causes map[string]string) string {
	for _, id := range slices.Concat(device.GPUs, device.VFs) {
		if causes[id] != "" {
			return causes[id]
		}
	}
	return ""
}
