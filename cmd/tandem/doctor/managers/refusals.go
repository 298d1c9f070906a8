// SPDX-License-Identifier: Apache-2.0

package managers

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/finding"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
)

// Refusals checks the kubelet's own conditions at its start, of the settings that Tandem reads: with a
// finding the kubelet does not start (pkg/kubelet/apis/config/validation, and the managers in
// pkg/kubelet/cm).
func Refusals(f Facts) []finding.Finding {
	return finding.Judge(f, unknownPolicies, badOptions, manyNodes, reservedWithCgroup, wrongReservedCPUs,
		wrongAmounts, noReservedCPUs, noReservedMemory)
}

func unknownPolicies(f Facts) (findings []finding.Finding) {
	for _, s := range []struct {
		id, key, value string
		known          []string
	}{
		{"topology-policy", "topologyManagerPolicy", f.Policy, []string{
			"none", "best-effort", Restricted, "single-numa-node",
		}},
		{"topology-scope", "topologyManagerScope", f.Scope, []string{Container, "pod"}},
		{"cpu-manager", "cpuManagerPolicy", f.CPUPolicy, []string{"none", Static}},
		{"memory-manager", "memoryManagerPolicy", f.MemoryPolicy, []string{"None", "Static"}},
	} {
		if slices.Contains(s.known, s.value) {
			continue
		}
		findings = append(findings, finding.Finding{
			ID: s.id, Severity: finding.Error,
			Summary:  fmt.Sprintf("The kubelet's %s is %s.", s.key, s.value),
			Evidence: []string{f.Says(s.key, s.value)},
			Why:      "The kubelet rejects the value and does not start.",
			Fix:      []string{fmt.Sprintf("one of: %s", strings.Join(s.known, ", "))},
		})
	}
	return findings
}

// badOptions finds options that the Topology Manager does not take. Under the policy none nobody reads them.
func badOptions(f Facts) (findings []finding.Finding) {
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
		case option == MaxNodes && (notNumber != nil || number < model.MaxNodes):
			why = fmt.Sprintf("it is no number from %d on", model.MaxNodes)
		case option != preferClosest && option != MaxNodes:
			why = "there is no such option"
		default:
			continue
		}
		findings = append(findings, finding.Finding{
			ID: "topology-options", Severity: finding.Error,
			Summary:  fmt.Sprintf("The kubelet's Topology Manager has the option %s: %q, and %s.", option, value, why),
			Evidence: []string{f.optionsSay()},
			Why:      "The kubelet does not start.",
			Fix:      []string{"correct or remove the option in topologyManagerPolicyOptions"},
		})
	}
	return findings
}

func manyNodes(f Facts) []finding.Finding {
	return finding.When(f.Policy != "none" && f.NUMANodes > f.AllowedNodes(), finding.Finding{
		ID: "many-numa-nodes", Severity: finding.Error,
		Summary: fmt.Sprintf("The machine has %d NUMA nodes, and the kubelet allows %d.",
			f.NUMANodes, f.AllowedNodes()),
		Evidence: []string{f.optionsSay()},
		Why:      "With a Topology Manager policy the kubelet does not start.",
		Fix: []string{
			"fewer nodes: NPS or sub-NUMA clustering in the firmware",
			fmt.Sprintf("or, from Kubernetes 1.31 on, topologyManagerPolicyOptions: {%s: \"%d\"}; "+
				"admission becomes slower with every node", MaxNodes, f.NUMANodes),
		},
	})
}

func reservedWithCgroup(f Facts) []finding.Finding {
	hasCgroup := f.SystemReservedCgroup != "" || f.KubeReservedCgroup != ""
	return finding.When(f.ReservedCPUs != "" && hasCgroup, finding.Finding{
		ID: "reserved-cpus", Severity: finding.Error,
		Summary: "The kubelet has reservedSystemCPUs together with systemReservedCgroup or kubeReservedCgroup.",
		Evidence: []string{
			f.Says("reservedSystemCPUs", f.ReservedCPUs), f.Says("systemReservedCgroup", f.SystemReservedCgroup),
			f.Says("kubeReservedCgroup", f.KubeReservedCgroup),
		},
		Why: "The kubelet accepts either named CPUs or a cgroup, and does not start with both.",
		Fix: []string{"reserve an amount: cpu in systemReserved and kubeReserved, without reservedSystemCPUs"},
	})
}

func wrongReservedCPUs(f Facts) []finding.Finding {
	if f.ReservedCPUs == "" {
		return nil
	}
	wrong := finding.Finding{
		ID: "reserved-cpus", Severity: finding.Error,
		Evidence: []string{f.Says("reservedSystemCPUs", f.ReservedCPUs)},
		Why:      "The kubelet does not start.",
		Fix:      []string{"reservedSystemCPUs: \"" + f.FirstCPUs() + "\""},
	}
	reserved, err := f.Reserved()
	missing := reserved.Without(f.AllCPUs())
	switch {
	case err != nil:
		wrong.Summary = fmt.Sprintf("reservedSystemCPUs is no list of CPUs: %v.", err)
	case len(f.CPUs) > 0 && len(missing) > 0:
		wrong.Summary = fmt.Sprintf("reservedSystemCPUs names CPUs that the machine does not have: %s.", missing)
		wrong.Evidence = append(wrong.Evidence, "CPUs of this machine: "+f.AllCPUs().String())
	default:
		return nil
	}
	return []finding.Finding{wrong}
}

func wrongAmounts(f Facts) []finding.Finding {
	_, err := f.ReservedAmount()
	return finding.When(err != nil, finding.Finding{
		ID: "reserved-cpus", Severity: finding.Error,
		Summary: "The kubelet has a reserved amount that is no quantity.",
		Evidence: []string{
			f.Says("kubeReserved", fmt.Sprint(f.KubeReserved)), f.Says("systemReserved", fmt.Sprint(f.SystemReserved)),
		},
		Why: "The kubelet does not start.",
		Fix: []string{fmt.Sprint(err)},
	})
}

func noReservedCPUs(f Facts) []finding.Finding {
	return finding.When(f.CPUPolicy == Static && !f.Reserves(), finding.Finding{
		ID: "reserved-cpus", Severity: finding.Error,
		Summary: "The kubelet's CPU manager is static, and no CPU is reserved for the system.",
		Evidence: []string{
			f.Says("reservedSystemCPUs", strconv.Quote(f.ReservedCPUs)),
			f.Says("kubeReserved", fmt.Sprint(f.KubeReserved)), f.Says("systemReserved", fmt.Sprint(f.SystemReserved)),
		},
		Why: "The kubelet does not start: the static policy requires reservedSystemCPUs, " +
			"or CPUs in kubeReserved or systemReserved.",
		Fix: []string{staticCPUs("reservedSystemCPUs: \"" + f.FirstCPUs() + "\"")},
	})
}

func noReservedMemory(f Facts) []finding.Finding {
	return finding.When(f.MemoryPolicy == "Static" && len(f.ReservedMemory) == 0, finding.Finding{
		ID: "reserved-memory", Severity: finding.Error,
		Summary: "The kubelet's memory manager is static, and no memory is reserved.",
		Evidence: []string{
			f.Says("memoryManagerPolicy", "Static"), f.Says("reservedMemory", "none"),
		},
		Why: "The kubelet does not start: the static policy requires reservedMemory equal to kubeReserved, " +
			"systemReserved and the eviction limit in total.",
		Fix: []string{"reservedMemory: [{numaNode: 0, limits: {memory: SUM}}]"},
	})
}
