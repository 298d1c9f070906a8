// SPDX-License-Identifier: Apache-2.0

package pool

import (
	resourceapi "k8s.io/api/resource/v1"
)

// Taint keys. The effect is NoSchedule: a holder keeps the device.
const (
	TaintUnhealthy    = Driver + "/unhealthy"     // the value contains the part and the reason
	TaintDevicePlugin = Driver + "/device-plugin" // held through a device plugin; the value names the pod
	TaintInUse        = Driver + "/in-use"        // a claim holds it through the device in the value
)

// taints returns the reasons why a device cannot be allocated now; inUse is the device through which a claim
// holds it, "" for none.
func taints(i *item, inUse string) (taints []resourceapi.DeviceTaint) {
	unhealthy, held := "", ""
	for _, gpu := range i.gpus {
		if !gpu.Healthy && unhealthy == "" {
			unhealthy = gpuCounter(gpu)
		}
		if held == "" {
			held = gpu.Held
		}
	}
	for _, vf := range i.vfs {
		if vf.Fault != "" && unhealthy == "" {
			unhealthy = vfCounter(vf) + " " + vf.Fault
		}
		if held == "" {
			held = vf.Held
		}
	}
	for _, taint := range []struct{ key, value string }{
		{TaintUnhealthy, unhealthy}, {TaintDevicePlugin, held}, {TaintInUse, inUse},
	} {
		if taint.value != "" {
			taints = append(taints, resourceapi.DeviceTaint{
				Key: taint.key, Value: label(taint.value), Effect: resourceapi.DeviceTaintEffectNoSchedule,
			})
		}
	}
	return taints
}
