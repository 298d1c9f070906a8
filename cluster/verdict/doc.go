// SPDX-License-Identifier: Apache-2.0

// Package verdict tells, of a published node, what its kubelet would say to a pod, and which devices and
// pairs the pod's containers would get there. It is a pure function of the object and of the pods that are
// admitted: no clock, no logger, no I/O.
//
// [State.Admit] does as the kubelet does: containers one after the other, the Topology Manager's merge of
// all hints (package hints), then the devices, as the device manager gives them and the coordinator of
// coordination/admission chooses them, where it knows what the container asks for. [State.Ask] leaves the
// choice out as far as the verdict does not hang on it.
//
// The verdict is the kubelet's. Devices, and so pairs, can differ where chance decides ([Verdict.Chance]),
// where the coordinator does not know who asks, and under best-effort, none and, for VFs without hints,
// scope pod or a static memory manager: it foresees NUMA nodes as under restricted and scope container, and
// knows nothing of memory. Devices that plugins share out
// several times, devices that a scheduler chose (annotation tandem.dev/devices), and resources of other
// plugins are not looked at, nor is the daemons' flag --alignment, which the object does not tell.
package verdict
