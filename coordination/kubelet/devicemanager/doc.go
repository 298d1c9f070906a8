// SPDX-License-Identifier: Apache-2.0

// Package devicemanager is the kubelet's device manager as pure functions: the devices of a container, the
// preceding GetPreferredAllocation calls to the device plugins, and the refusal of pods
// (pkg/kubelet/cm/devicemanager/manager.go, pkg/kubelet/cm/topologymanager). Package hints chooses the NUMA
// nodes.
//
// A [Node] has the devices of the node's resources at fixed numbers, so that each set of devices is a [Set]
// of bits. An [Admission] admits one pod: container after container, each with its NUMA nodes and then its
// devices. [Others] contains the decisions outside the device manager: the answers of plugins, the CPU and
// memory managers, and the random choice of devices.
//
// The scheduler's verdict (coordination/verdict) and the simulation (test/simulate) are adapters of
// this model. A test compares the model with the kubelet's own managers (test/kubernetes/kubelet).
package devicemanager
