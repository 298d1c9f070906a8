// SPDX-License-Identifier: Apache-2.0

// Package hints says which NUMA nodes the kubelet's Topology Manager gives a container, and whether it admits
// it.
//
// The rule is that of pkg/kubelet/cm/topologymanager (policy.go, policy_restricted.go,
// policy_best_effort.go, policy_single_numa_node.go, numa_info.go) and devicemanager/topology_hints.go. A
// hint of a resource is a set of NUMA nodes that has enough free devices; it is preferred where it is as
// small as all devices, free or not, allow. Where all resources prefer the same set the container gets the
// narrowest such set. Elsewhere policy restricted refuses it, and best-effort gives it what one hint of
// every resource has in common. Policy single-numa-node knows no hint but those of one node that are
// preferred. CPUs that a container has alone are a demand like devices; hints that a manager of the kubelet
// has computed itself come as a [List].
package hints

import (
	"fmt"
	"slices"
	"strings"
)

// Policy is a Topology Manager policy of the kubelet.
type Policy string

// The policies.
const (
	Restricted     Policy = "restricted"
	BestEffort     Policy = "best-effort"
	SingleNUMANode Policy = "single-numa-node"
	None           Policy = "none"
)

// ParsePolicy reads a policy as the kubelet's configuration spells it.
func ParsePolicy(s string) (Policy, error) {
	known := []string{string(Restricted), string(BestEffort), string(SingleNUMANode), string(None)}
	if !slices.Contains(known, s) {
		return "", fmt.Errorf("parse policy %q: want %s", s, strings.Join(known, ", "))
	}
	return Policy(s), nil
}

// Nodes is what [Rule.Nodes] says where nothing but the policy is known.
func (p Policy) Nodes(demands ...Demand) (Mask, bool) { return Rule{Policy: p}.Nodes(demands) }
