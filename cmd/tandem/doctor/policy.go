// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"
)

// fixKubelet is the command that mends most of what is advised.
const fixKubelet = "tandem doctor --fix-kubelet"

const orConfigure = fixKubelet + ", or in the kubelet's configuration: "

// advice are the checks of settings with which the kubelet starts.
func advice() []check {
	return []check{topologyPolicy, topologyScope, closestNodes, cpuManager, wholeNodesReserved, oldSettings}
}

func topologyPolicy(f facts) []Finding {
	finding := Finding{
		ID: "topology-policy", Severity: Warning,
		Summary:  fmt.Sprintf("The kubelet's topologyManagerPolicy is %s.", f.Policy),
		Evidence: []string{f.Says("topologyManagerPolicy", f.Policy)},
		Fix:      []string{orConfigure + "topologyManagerPolicy: restricted"},
	}
	switch f.Policy {
	case "none":
		finding.Severity = Error
		finding.Why = "GPUs, VFs and CPUs of a container are not kept on one NUMA node, and a container is " +
			"admitted even where its GPUs and VFs cannot be near each other."
	case "best-effort":
		finding.Why = "A container is admitted even where its GPUs and VFs have to come from different NUMA " +
			"nodes; then no pair is on one switch."
	case "single-numa-node":
		finding.Why = "A container that needs the GPUs of more than one NUMA node is always refused."
	default:
		return nil
	}
	return []Finding{finding}
}

func topologyScope(f facts) []Finding {
	if f.Scope != "pod" || f.Policy == "none" {
		return nil
	}
	return []Finding{{
		ID: "topology-scope", Severity: Warning,
		Summary:  fmt.Sprintf("The kubelet's topologyManagerScope is %s.", f.Scope),
		Evidence: []string{f.Says("topologyManagerScope", f.Scope)},
		Why: "All containers of a pod have to fit the same smallest set of NUMA nodes together: pods with " +
			"sidecars that have CPUs or devices are refused more often, and no pair becomes nearer.",
		Fix: []string{orConfigure + "topologyManagerScope: container"},
	}}
}

// closestNodes: between two nodes there is only one distance.
func closestNodes(f facts) []Finding {
	if f.Policy == "none" || f.numaNodes <= 2 || f.PolicyOptions[preferClosest] == "true" {
		return nil
	}
	return []Finding{{
		ID: "closest-nodes", Severity: Warning,
		Summary: fmt.Sprintf("The kubelet does not prefer NUMA nodes that are close to each other, "+
			"and there are %d.", f.numaNodes),
		Evidence: []string{
			f.optionsSay(), count(f.numaNodes, "NUMA node") + " in /sys/devices/system/node/online",
		},
		Why: "A container that needs two nodes gets those with the lowest numbers, which may be on two sockets.",
		Fix: []string{orConfigure + "topologyManagerPolicyOptions: {prefer-closest-numa-nodes: \"true\"}"},
	}}
}

func cpuManager(f facts) []Finding {
	if f.CPUPolicy != "none" {
		return nil
	}
	return []Finding{{
		ID: "cpu-manager", Severity: Warning,
		Summary:  fmt.Sprintf("The kubelet's cpuManagerPolicy is %s.", f.CPUPolicy),
		Evidence: []string{f.Says("cpuManagerPolicy", f.CPUPolicy)},
		Why:      "The processes of a container run on CPUs of any socket, away from its GPUs and VFs.",
		Fix: []string{fixKubelet + " --static-cpus, or in the kubelet's configuration: cpuManagerPolicy: static, " +
			"with reservedSystemCPUs"},
	}}
}

// wholeNodesReserved finds NUMA nodes of which no CPU is left. Which CPUs an amount takes is not known.
func wholeNodesReserved(f facts) (findings []Finding) {
	reserved, err := f.reserved()
	if f.CPUPolicy != static || f.ReservedCPUs == "" || err != nil {
		return nil
	}
	for number, set := range f.cpus {
		if len(set) == 0 || len(set.Without(reserved)) > 0 {
			continue
		}
		findings = append(findings, Finding{
			ID: "reserved-cpus", Severity: Error,
			Summary: fmt.Sprintf("All CPUs of NUMA node %d are reserved for the system.", number),
			Evidence: []string{
				f.Says("reservedSystemCPUs", f.ReservedCPUs), fmt.Sprintf("node %d has the CPUs %s", number, set),
			},
			Why: "No guaranteed pod can have its CPUs where the GPUs and VFs of that node are: those are lost " +
				"to such pods.",
			Fix: []string{"spread reservedSystemCPUs over all nodes: \"" + f.firstCPUs() + "\""},
		})
	}
	return findings
}

// oldSettings: the kubelet reads its files when it starts.
func oldSettings(f facts) []Finding {
	if len(f.changed) == 0 {
		return nil
	}
	var evidence []string
	for _, file := range f.changed {
		evidence = append(evidence, file+" is younger than the kubelet's process")
	}
	return []Finding{{
		ID: "kubelet-restart", Severity: Warning,
		Summary:  "The kubelet was started before its configuration was changed.",
		Evidence: some(evidence),
		Why:      "It may still run with other settings than those that this report is about.",
		Fix:      []string{"drain the node, then: systemctl restart kubelet"},
	}}
}

// restarted tells how a kubelet takes over a new configuration.
func restarted(commands ...string) string {
	return strings.Join(append(append([]string{"systemctl stop kubelet"}, commands...),
		"systemctl start kubelet"), " && ")
}
