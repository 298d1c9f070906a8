// SPDX-License-Identifier: Apache-2.0

// Package verdict predicts, from a published node, the decision of the kubelet on a pod, and the devices and
// pairs of the pod's containers. The verdict is a pure function of the object and of the admitted pods: no
// clock, no logger, no I/O.
//
// [State.Admit] follows the kubelet: one container after another, the Topology Manager's merge of all hints
// (package hints), then the devices, as chosen by the device manager and by the coordinator of
// coordination/admission if the coordinator knows the container's request. [State.Ask] omits the choice if
// the verdict does not depend on the devices.
//
// The verdict is the kubelet's. Devices, and therefore pairs, can differ in the following cases: random
// choices ([Verdict.Chance]); a container that the coordinator cannot identify; and, for VFs without hints,
// a static memory manager, and CPUs under scope pod, which the coordinator ignores. The package ignores
// shared devices (time slicing), devices that a scheduler chose (annotation tandem.dev/devices), and
// resources of other plugins. A required alignment counts also on a node that reads no annotations: there the
// pod's pairs would be on one switch by chance alone.
package verdict
