// SPDX-License-Identifier: Apache-2.0

// Package hinting decides which pools of VFs have NUMA hints, by the rule for the kubelet's admission in
// package model.
package hinting

import (
	"cmp"

	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// Decide returns the decision about each pool with a device that leaves its hints to the node, by name. The
// pools are those found on the machine, with its NUMA nodes. A pool without hints has no part in a decision.
func Decide(node model.Hinting, found []pools.Pool) map[string]pools.Decision {
	node.Pools = nil
	for _, p := range found {
		if p.Resource.ExcludeTopology == pools.Always || len(p.Devices) == 0 {
			continue
		}
		one := model.Pool{Fixed: p.Resource.ExcludeTopology == pools.Never}
		one.Name, one.Kind = p.Name, model.VF
		for _, d := range p.Devices {
			one.Devices = append(one.Devices, model.Device{NUMA: d.NUMA, Healthy: d.Fault == ""})
		}
		node.Pools = append(node.Pools, one)
	}
	decided := map[string]pools.Decision{}
	for name, against := range node.Decide() {
		why := cmp.Or(against, "the kubelet admits as many VFs as GPUs with them")
		decided[name] = pools.Decision{Hints: against == "", Why: why}
	}
	return decided
}
