// SPDX-License-Identifier: Apache-2.0

// Package topologymanager is the kubelet's Topology Manager for judges: the NUMA nodes of a container, or the
// rejection, by the same steps as kubelet 1.36.3 and 1.37.1. It shares no code with package model of the
// product, which it judges, and makes no step faster than the kubelet does.
//
//   - Hints (generateDeviceTopologyHints in pkg/kubelet/cm/devicemanager/topology_hints.go): a set of NUMA
//     nodes is a hint if it has all devices of init containers that the container reuses, and enough devices
//     with them. The sets range over the nodes with devices of the resource. Hints with as few nodes as all
//     devices permit, allocated and unhealthy ones too, are preferred.
//   - Merge (HintMerger in pkg/kubelet/cm/topologymanager/policy.go): of all combinations of one hint of each
//     resource, the best intersection. It is preferred if all its hints are preferred and equal.
//
// The test of the models in test/kubernetes/kubelet compares the package with the real managers.
package topologymanager
