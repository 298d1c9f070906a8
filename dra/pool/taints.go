package pool

import (
	resourceapi "k8s.io/api/resource/v1"
)

// Keys of taints. Their effect is NoSchedule: what holds a device keeps it.
const (
	TaintUnhealthy    = Driver + "/unhealthy"     // the value says what of it, and why
	TaintDevicePlugin = Driver + "/device-plugin" // a pod has it from a device plugin; the value says which
	TaintInUse        = Driver + "/in-use"        // a claim has it by another device, which the value names
)

// taints say why a device cannot be allocated now; inUse is the device by which a claim has it, "" for none.
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
