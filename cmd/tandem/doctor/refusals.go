// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// refusals are the kubelet's own conditions at its start, as far as they are about the settings that Tandem
// reads: with a finding of one it does not start (pkg/kubelet/apis/config/validation, and the managers in
// pkg/kubelet/cm). No file is written that would cause one.
func refusals() []check {
	return []check{
		unknownPolicies, badOptions, manyNodes, reservedWithCgroup, wrongReservedCPUs, noReservedCPUs,
		noReservedMemory,
	}
}

// restricted, container and static are the values that Tandem needs or advises.
const restricted, container, static = "restricted", "container", "static"

func unknownPolicies(f facts) (findings []Finding) {
	for _, s := range []struct {
		id, key, value string
		known          []string
	}{
		{"topology-policy", "topologyManagerPolicy", f.Policy, []string{
			"none", "best-effort", restricted, "single-numa-node",
		}},
		{"topology-scope", "topologyManagerScope", f.Scope, []string{container, "pod"}},
		{"cpu-manager", "cpuManagerPolicy", f.CPUPolicy, []string{"none", static}},
		{"memory-manager", "memoryManagerPolicy", f.MemoryPolicy, []string{"None", "Static"}},
	} {
		if slices.Contains(s.known, s.value) {
			continue
		}
		findings = append(findings, Finding{
			ID: s.id, Severity: Error,
			Summary:  fmt.Sprintf("The kubelet's %s is %s.", s.key, s.value),
			Evidence: []string{f.Says(s.key, s.value)},
			Why:      "The kubelet knows no such value and does not start.",
			Fix:      []string{fmt.Sprintf("one of: %s", strings.Join(s.known, ", "))},
		})
	}
	return findings
}

// The options of the Topology Manager (pkg/kubelet/cm/topologymanager/policy_options.go).
const preferClosest, maxNodes = "prefer-closest-numa-nodes", "max-allowable-numa-nodes"

// badOptions: under the policy none nobody reads them.
func badOptions(f facts) (findings []Finding) {
	if f.Policy == "none" {
		return nil
	}
	for _, option := range slices.Sorted(maps.Keys(f.PolicyOptions)) {
		value, why := f.PolicyOptions[option], ""
		number, notNumber := strconv.Atoi(value)
		_, notBool := strconv.ParseBool(value)
		switch {
		case option == preferClosest && notBool != nil:
			why = "it is neither true nor false"
		case option == maxNodes && (notNumber != nil || number < hints.MaxNodes):
			why = fmt.Sprintf("it is no number from %d on", hints.MaxNodes)
		case option != preferClosest && option != maxNodes:
			why = "there is no such option"
		default:
			continue
		}
		findings = append(findings, Finding{
			ID: "topology-options", Severity: Error,
			Summary:  fmt.Sprintf("The kubelet's Topology Manager has the option %s: %q, and %s.", option, value, why),
			Evidence: []string{f.optionsSay()},
			Why:      "The kubelet does not start.",
			Fix:      []string{"correct the option in topologyManagerPolicyOptions, or take it out"},
		})
	}
	return findings
}

// allowedNodes is the number of NUMA nodes that the kubelet allows (maxAllowableNUMANodes in
// pkg/kubelet/cm/topologymanager).
func (f facts) allowedNodes() int {
	allowed, _ := strconv.Atoi(f.PolicyOptions[maxNodes]) // none is 0
	return max(hints.MaxNodes, allowed)
}

func manyNodes(f facts) []Finding {
	if f.Policy == "none" || f.numaNodes <= f.allowedNodes() {
		return nil
	}
	return []Finding{{
		ID: "many-numa-nodes", Severity: Error,
		Summary: fmt.Sprintf("The machine has %d NUMA nodes, and the kubelet allows %d.",
			f.numaNodes, f.allowedNodes()),
		Evidence: []string{f.optionsSay()},
		Why:      "With a Topology Manager policy the kubelet does not start.",
		Fix: []string{
			"fewer nodes: NPS or sub-NUMA clustering in the firmware",
			fmt.Sprintf("or, from Kubernetes 1.31 on, topologyManagerPolicyOptions: {%s: \"%d\"}; "+
				"admission becomes slower with every node", maxNodes, f.numaNodes),
		},
	}}
}

func reservedWithCgroup(f facts) []Finding {
	if f.ReservedCPUs == "" || f.SystemReservedCgroup == "" && f.KubeReservedCgroup == "" {
		return nil
	}
	return []Finding{{
		ID: "reserved-cpus", Severity: Error,
		Summary: "The kubelet has reservedSystemCPUs beside systemReservedCgroup or kubeReservedCgroup.",
		Evidence: []string{
			f.Says("reservedSystemCPUs", f.ReservedCPUs), f.Says("systemReservedCgroup", f.SystemReservedCgroup),
			f.Says("kubeReservedCgroup", f.KubeReservedCgroup),
		},
		Why: "The kubelet takes named CPUs or a cgroup, and does not start with both.",
		Fix: []string{"reserve an amount: cpu in systemReserved and kubeReserved, without reservedSystemCPUs"},
	}}
}

func wrongReservedCPUs(f facts) []Finding {
	if f.ReservedCPUs == "" {
		return nil
	}
	wrong := Finding{
		ID: "reserved-cpus", Severity: Error,
		Evidence: []string{f.Says("reservedSystemCPUs", f.ReservedCPUs)},
		Why:      "The kubelet does not start.",
		Fix:      []string{"reservedSystemCPUs: \"" + f.firstCPUs() + "\""},
	}
	reserved, err := f.reserved()
	missing := reserved.Without(f.allCPUs())
	switch {
	case err != nil:
		wrong.Summary = fmt.Sprintf("reservedSystemCPUs is no list of CPUs: %v.", err)
	case len(f.cpus) > 0 && len(missing) > 0:
		wrong.Summary = fmt.Sprintf("reservedSystemCPUs names CPUs that the machine does not have: %s.", missing)
		wrong.Evidence = append(wrong.Evidence, "CPUs of this machine: "+f.allCPUs().String())
	default:
		return nil
	}
	return []Finding{wrong}
}

// reserves reports whether CPUs are reserved, by name or by amount.
func (f facts) reserves() bool { return f.ReservedCPUs != "" || f.ReservedAmount() > 0 }

func noReservedCPUs(f facts) []Finding {
	if f.CPUPolicy != static || f.reserves() {
		return nil
	}
	return []Finding{{
		ID: "reserved-cpus", Severity: Error,
		Summary: "The kubelet's CPU manager is static, and no CPU is reserved for the system.",
		Evidence: []string{
			f.Says("reservedSystemCPUs", strconv.Quote(f.ReservedCPUs)),
			f.Says("kubeReserved", fmt.Sprint(f.KubeReserved)), f.Says("systemReserved", fmt.Sprint(f.SystemReserved)),
		},
		Why: "The kubelet does not start: its static policy wants reservedSystemCPUs, " +
			"or CPUs in kubeReserved or systemReserved.",
		Fix: []string{fixKubelet + " --static-cpus, or reservedSystemCPUs: \"" + f.firstCPUs() + "\""},
	}}
}

func noReservedMemory(f facts) []Finding {
	if f.MemoryPolicy != "Static" || len(f.ReservedMemory) > 0 {
		return nil
	}
	return []Finding{{
		ID: "reserved-memory", Severity: Error,
		Summary: "The kubelet's memory manager is static, and no memory is reserved.",
		Evidence: []string{
			f.Says("memoryManagerPolicy", "Static"), f.Says("reservedMemory", "none"),
		},
		Why: "The kubelet does not start: the static policy wants as much reserved memory as kubeReserved, " +
			"systemReserved and the eviction limit together.",
		Fix: []string{"reservedMemory: [{numaNode: 0, limits: {memory: SUM}}]"},
	}}
}
