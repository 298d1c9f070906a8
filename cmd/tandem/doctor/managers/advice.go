// SPDX-License-Identifier: Apache-2.0

package managers

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/finding"
)

// Advice checks settings with which the kubelet starts, apart from [TopologyPolicy].
func Advice(f Facts) []finding.Finding {
	return finding.Judge(f, topologyScope, closestNodes, cpuManager, wholeNodesReserved, oldSettings)
}

// TopologyPolicy finds another policy than the one that Tandem requires.
func TopologyPolicy(f Facts) []finding.Finding {
	advice := finding.Finding{
		ID: "topology-policy", Severity: finding.Warning,
		Summary:  fmt.Sprintf("The kubelet's topologyManagerPolicy is %s.", f.Policy),
		Evidence: []string{f.Says("topologyManagerPolicy", f.Policy)},
		Fix:      []string{configure("topologyManagerPolicy: restricted")},
	}
	switch f.Policy {
	case "none":
		advice.Severity = finding.Error
		advice.Why = "GPUs, VFs and CPUs of a container can be on different NUMA nodes, and a container is " +
			"admitted even if its GPUs and VFs cannot be near each other."
	case "best-effort":
		advice.Why = "A container is admitted even if its GPUs and VFs come from different NUMA " +
			"nodes; then no pair is on one switch."
	case "single-numa-node":
		advice.Why = "A container that needs the GPUs of more than one NUMA node is always rejected."
	default:
		return nil
	}
	return []finding.Finding{advice}
}

func topologyScope(f Facts) []finding.Finding {
	return finding.When(f.Scope == "pod" && f.Policy != "none", finding.Finding{
		ID: "topology-scope", Severity: finding.Warning,
		Summary:  fmt.Sprintf("The kubelet's topologyManagerScope is %s.", f.Scope),
		Evidence: []string{f.Says("topologyManagerScope", f.Scope)},
		Why: "All containers of a pod together have to fit the same smallest set of NUMA nodes: pods with " +
			"sidecars that have CPUs or devices are rejected more often, without nearer pairs.",
		Fix: []string{configure("topologyManagerScope: container")},
	})
}

// closestNodes counts more than two nodes: between two there is only one distance.
func closestNodes(f Facts) []finding.Finding {
	far := f.NUMANodes > 2 && f.PolicyOptions[preferClosest] != "true"
	return finding.When(f.Policy != "none" && far, finding.Finding{
		ID: "closest-nodes", Severity: finding.Warning,
		Summary: fmt.Sprintf("The kubelet does not prefer NUMA nodes that are close to each other, "+
			"and there are %d.", f.NUMANodes),
		Evidence: []string{
			f.optionsSay(), cli.Count(f.NUMANodes, "NUMA node") + " in /sys/devices/system/node/online",
		},
		Why: "A container that needs two nodes gets the nodes with the lowest numbers, possibly on two sockets.",
		Fix: []string{configure("topologyManagerPolicyOptions: {prefer-closest-numa-nodes: \"true\"}")},
	})
}

func cpuManager(f Facts) []finding.Finding {
	return finding.When(f.CPUPolicy == "none", finding.Finding{
		ID: "cpu-manager", Severity: finding.Warning,
		Summary:  fmt.Sprintf("The kubelet's cpuManagerPolicy is %s.", f.CPUPolicy),
		Evidence: []string{f.Says("cpuManagerPolicy", f.CPUPolicy)},
		Why:      "The processes of a container run on CPUs of any socket, away from its GPUs and VFs.",
		Fix:      []string{staticCPUs("cpuManagerPolicy: static, with reservedSystemCPUs")},
	})
}

// wholeNodesReserved finds NUMA nodes without a CPU for containers. Which CPUs an amount takes is unknown.
func wholeNodesReserved(f Facts) (findings []finding.Finding) {
	reserved, err := f.Reserved()
	if f.CPUPolicy != Static || f.ReservedCPUs == "" || err != nil {
		return nil
	}
	for _, number := range slices.Sorted(maps.Keys(f.CPUs)) {
		set := f.CPUs[number]
		if len(set) == 0 || len(set.Without(reserved)) > 0 {
			continue
		}
		findings = append(findings, finding.Finding{
			ID: "reserved-cpus", Severity: finding.Error,
			Summary: fmt.Sprintf("All CPUs of NUMA node %d are reserved for the system.", number),
			Evidence: []string{
				f.Says("reservedSystemCPUs", f.ReservedCPUs), fmt.Sprintf("node %d has the CPUs %s", number, set),
			},
			Why: "No guaranteed pod can have its CPUs near the GPUs and VFs of this node: these devices are lost " +
				"to such pods.",
			Fix: []string{"spread reservedSystemCPUs over all nodes: \"" + f.FirstCPUs() + "\""},
		})
	}
	return findings
}

// oldSettings finds files that changed after the kubelet has read them at its start.
func oldSettings(f Facts) []finding.Finding {
	var evidence []string
	for _, file := range f.Changed {
		evidence = append(evidence, f.At.Shown(file)+" is younger than the kubelet's process")
	}
	return finding.OfSome(evidence, finding.Finding{
		ID: "kubelet-restart", Severity: finding.Warning,
		Summary: "The kubelet was started before its configuration was changed.",
		Why:     "The running kubelet may still use other settings than this report.",
		Fix:     []string{"drain the node, then: systemctl restart kubelet"},
	})
}
