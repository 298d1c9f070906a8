// SPDX-License-Identifier: Apache-2.0

// Package devicemanager is the kubelet's device manager as pure functions: which devices a container is
// given, which questions the kubelet asks the device plugins before, and which pods the kubelet refuses
// (pkg/kubelet/cm/devicemanager/manager.go, pkg/kubelet/cm/topologymanager). The choice of NUMA nodes is
// that of package hints.
//
// A [Node] has the devices of the node's resources at fixed numbers, so that each set of devices is a [Set]
// of bits. An [Admission] admits one pod: container after container, each with its NUMA nodes and then its
// devices. What the device manager leaves to others (the answer of a plugin, the CPU and memory managers,
// the devices that it takes at random) comes from [Others].
//
// The scheduler's verdict (cluster/verdict) and the simulation (cmd/tandem/simulation/world) are adapters of
// this model. A test compares the model with the kubelet's own managers (test/kubernetes/kubelet).
package devicemanager
