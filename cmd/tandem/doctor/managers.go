// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
)

// Refusals checks the kubelet's own conditions at its start, of the settings that Tandem reads: with a
// finding the kubelet does not start (pkg/kubelet/apis/config/validation, and the managers in
// pkg/kubelet/cm).
func (f ManagerSettings) Refusals() []Finding {
	return judgeAll(f, unknownPolicies, badOptions, manyNodes, reservedWithCgroup, wrongReservedCPUs,
		wrongAmounts, noReservedCPUs, noReservedMemory)
}

func unknownPolicies(f ManagerSettings) (findings []Finding) {
	for _, s := range []struct {
		id, key, value string
		known          []string
	}{
		{"topology-policy", "topologyManagerPolicy", f.Policy, []string{
			"none", "best-effort", restricted, "single-numa-node",
		}},
		{"topology-scope", "topologyManagerScope", f.Scope, []string{scopeContainer, "pod"}},
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
			Why:      "The kubelet rejects the value and does not start.",
			Fix:      []string{fmt.Sprintf("one of: %s", strings.Join(s.known, ", "))},
		})
	}
	return findings
}

// badOptions finds options that the Topology Manager does not take. Under the policy none nobody reads them.
func badOptions(f ManagerSettings) (findings []Finding) {
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
		case option == maxNodesOption && (notNumber != nil || number < model.MaxNodes):
			why = fmt.Sprintf("it is no number from %d on", model.MaxNodes)
		case option != preferClosest && option != maxNodesOption:
			why = "there is no such option"
		default:
			continue
		}
		findings = append(findings, Finding{
			ID: "topology-options", Severity: Error,
			Summary:  fmt.Sprintf("The kubelet's Topology Manager has the option %s: %q, and %s.", option, value, why),
			Evidence: []string{f.optionsSay()},
			Why:      "The kubelet does not start.",
			Fix:      []string{"correct or remove the option in topologyManagerPolicyOptions"},
		})
	}
	return findings
}

func manyNodes(f ManagerSettings) []Finding {
	return findWhen(f.Policy != "none" && f.NUMANodes > f.AllowedNodes(), Finding{
		ID: "many-numa-nodes", Severity: Error,
		Summary: fmt.Sprintf("The machine has %d NUMA nodes, and the kubelet allows %d.",
			f.NUMANodes, f.AllowedNodes()),
		Evidence: []string{f.optionsSay()},
		Why:      "With a Topology Manager policy the kubelet does not start.",
		Fix: []string{
			"fewer nodes: NPS or sub-NUMA clustering in the firmware",
			fmt.Sprintf("or, from Kubernetes 1.31 on, topologyManagerPolicyOptions: {%s: \"%d\"}; "+
				"admission becomes slower with every node", maxNodesOption, f.NUMANodes),
		},
	})
}

func reservedWithCgroup(f ManagerSettings) []Finding {
	hasCgroup := f.SystemReservedCgroup != "" || f.KubeReservedCgroup != ""
	return findWhen(f.ReservedCPUs != "" && hasCgroup, Finding{
		ID: "reserved-cpus", Severity: Error,
		Summary: "The kubelet has reservedSystemCPUs together with systemReservedCgroup or kubeReservedCgroup.",
		Evidence: []string{
			f.Says("reservedSystemCPUs", f.ReservedCPUs), f.Says("systemReservedCgroup", f.SystemReservedCgroup),
			f.Says("kubeReservedCgroup", f.KubeReservedCgroup),
		},
		Why: "The kubelet accepts either named CPUs or a cgroup, and does not start with both.",
		Fix: []string{"reserve an amount: cpu in systemReserved and kubeReserved, without reservedSystemCPUs"},
	})
}

func wrongReservedCPUs(f ManagerSettings) []Finding {
	if f.ReservedCPUs == "" {
		return nil
	}
	wrong := Finding{
		ID: "reserved-cpus", Severity: Error,
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
	return []Finding{wrong}
}

func wrongAmounts(f ManagerSettings) []Finding {
	_, err := f.ReservedAmount()
	return findWhen(err != nil, Finding{
		ID: "reserved-cpus", Severity: Error,
		Summary: "The kubelet has a reserved amount that is no quantity.",
		Evidence: []string{
			f.Says("kubeReserved", fmt.Sprint(f.KubeReserved)), f.Says("systemReserved", fmt.Sprint(f.SystemReserved)),
		},
		Why: "The kubelet does not start.",
		Fix: []string{fmt.Sprint(err)},
	})
}

func noReservedCPUs(f ManagerSettings) []Finding {
	return findWhen(f.CPUPolicy == static && !f.Reserves(), Finding{
		ID: "reserved-cpus", Severity: Error,
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

func noReservedMemory(f ManagerSettings) []Finding {
	return findWhen(f.MemoryPolicy == "Static" && len(f.ReservedMemory) == 0, Finding{
		ID: "reserved-memory", Severity: Error,
		Summary: "The kubelet's memory manager is static, and no memory is reserved.",
		Evidence: []string{
			f.Says("memoryManagerPolicy", "Static"), f.Says("reservedMemory", "none"),
		},
		Why: "The kubelet does not start: the static policy requires reservedMemory equal to kubeReserved, " +
			"systemReserved and the eviction limit in total.",
		Fix: []string{"reservedMemory: [{numaNode: 0, limits: {memory: SUM}}]"},
	})
}

// adviseSettings checks settings with which the kubelet starts, apart from [adviseTopologyPolicy].
func adviseSettings(f ManagerSettings) []Finding {
	return judgeAll(f, topologyScope, closestNodes, cpuManager, wholeNodesReserved, oldSettings)
}

// adviseTopologyPolicy finds another policy than the one that Tandem requires.
func adviseTopologyPolicy(f ManagerSettings) []Finding {
	advice := Finding{
		ID: "topology-policy", Severity: Warning,
		Summary:  fmt.Sprintf("The kubelet's topologyManagerPolicy is %s.", f.Policy),
		Evidence: []string{f.Says("topologyManagerPolicy", f.Policy)},
		Fix:      []string{configure("topologyManagerPolicy: restricted")},
	}
	switch f.Policy {
	case "none":
		advice.Severity = Error
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
	return []Finding{advice}
}

func topologyScope(f ManagerSettings) []Finding {
	return findWhen(f.Scope == "pod" && f.Policy != "none", Finding{
		ID: "topology-scope", Severity: Warning,
		Summary:  fmt.Sprintf("The kubelet's topologyManagerScope is %s.", f.Scope),
		Evidence: []string{f.Says("topologyManagerScope", f.Scope)},
		Why: "All containers of a pod together have to fit the same smallest set of NUMA nodes: pods with " +
			"sidecars that have CPUs or devices are rejected more often, without nearer pairs.",
		Fix: []string{configure("topologyManagerScope: container")},
	})
}

// closestNodes counts more than two nodes: between two there is only one distance.
func closestNodes(f ManagerSettings) []Finding {
	far := f.NUMANodes > 2 && f.PolicyOptions[preferClosest] != "true"
	return findWhen(f.Policy != "none" && far, Finding{
		ID: "closest-nodes", Severity: Warning,
		Summary: fmt.Sprintf("The kubelet does not prefer NUMA nodes that are close to each other, "+
			"and there are %d.", f.NUMANodes),
		Evidence: []string{
			f.optionsSay(), cli.Count(f.NUMANodes, "NUMA node") + " in /sys/devices/system/node/online",
		},
		Why: "A container that needs two nodes gets the nodes with the lowest numbers, possibly on two sockets.",
		Fix: []string{configure("topologyManagerPolicyOptions: {prefer-closest-numa-nodes: \"true\"}")},
	})
}

func cpuManager(f ManagerSettings) []Finding {
	return findWhen(f.CPUPolicy == "none", Finding{
		ID: "cpu-manager", Severity: Warning,
		Summary:  fmt.Sprintf("The kubelet's cpuManagerPolicy is %s.", f.CPUPolicy),
		Evidence: []string{f.Says("cpuManagerPolicy", f.CPUPolicy)},
		Why:      "The processes of a container run on CPUs of any socket, away from its GPUs and VFs.",
		Fix:      []string{staticCPUs("cpuManagerPolicy: static, with reservedSystemCPUs")},
	})
}

// wholeNodesReserved finds NUMA nodes without a CPU for containers. Which CPUs an amount takes is unknown.
func wholeNodesReserved(f ManagerSettings) (findings []Finding) {
	reserved, err := f.Reserved()
	if f.CPUPolicy != static || f.ReservedCPUs == "" || err != nil {
		return nil
	}
	for _, number := range slices.Sorted(maps.Keys(f.CPUs)) {
		set := f.CPUs[number]
		if len(set) == 0 || len(set.Without(reserved)) > 0 {
			continue
		}
		findings = append(findings, Finding{
			ID: "reserved-cpus", Severity: Error,
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
func oldSettings(f ManagerSettings) []Finding {
	var evidence []string
	for _, file := range f.Changed {
		evidence = append(evidence, f.At.Shown(file)+" is younger than the kubelet's process")
	}
	return findSome(evidence, Finding{
		ID: "kubelet-restart", Severity: Warning,
		Summary: "The kubelet was started before its configuration was changed.",
		Why:     "The running kubelet may still use other settings than this report.",
		Fix:     []string{"drain the node, then: systemctl restart kubelet"},
	})
}

// staleStates returns findings of the state files in the kubelet's folder with which the kubelet does not
// start, or whose content is unknown. A missing file is not stale: the kubelet starts without it. denied
// notes a file that may not be read.
func (f ManagerSettings) staleStates(dir string, denied func(path string, err error) bool) (stale []Finding) {
	cpus, err := kubelet.ReadCPUState(dir)
	file := stateFile{"cpu-state", kubelet.CPUStateFile, filepath.Join(dir, kubelet.CPUStateFile)}
	found := file.otherPolicy(cpus.PolicyName, f.CPUPolicy)
	if err == nil && len(found) == 0 {
		found, err = f.judgeCPUs(file, cpus)
	}
	stale = append(stale, file.judge(found, err, denied)...)

	memory, err := kubelet.ReadMemoryState(dir)
	file = stateFile{"memory-state", kubelet.MemoryStateFile, filepath.Join(dir, kubelet.MemoryStateFile)}
	return append(stale, file.judge(file.otherPolicy(memory.PolicyName, f.MemoryPolicy), err, denied)...)
}

// stateFile is the state that a manager keeps for the kubelet's next start.
type stateFile struct{ id, name, path string }

// judge returns what was found in a file that was read, otherwise why its content is unknown.
func (s stateFile) judge(
	found []Finding, err error, denied func(path string, err error) bool,
) []Finding {
	if err == nil {
		return found
	}
	if errors.Is(err, fs.ErrNotExist) || denied(s.path, err) {
		return nil
	}
	return []Finding{{
		ID: s.id, Severity: Unknown,
		Summary:  fmt.Sprintf("The content of the kubelet's %s is unknown.", s.name),
		Evidence: []string{err.Error()},
		Why:      "The kubelet does not start with a damaged state file.",
		Fix:      []string{"if the kubelet does not start: " + s.removal()},
	}}
}

func (s stateFile) removal() string { return restarted("rm " + s.path) }

func (s stateFile) stale(summary, why string, evidence ...string) []Finding {
	evidence[0] = s.path + ": " + evidence[0]
	return []Finding{{
		ID: s.id, Severity: Error, Summary: summary, Evidence: evidence, Why: why,
		Fix: []string{"drain the node, then: " + s.removal()},
	}}
}

func (s stateFile) otherPolicy(policy, configured string) []Finding {
	if policy == configured {
		return nil
	}
	return s.stale(
		fmt.Sprintf("The kubelet's %s is of the policy %s, and %s is configured.", s.name, policy, configured),
		"The kubelet will not start again: the file has to be removed whenever the policy changes.",
		"policyName "+policy)
}

// judgeCPUs repeats the checks of the static policy at the kubelet's start (validateState in
// pkg/kubelet/cm/cpumanager/policy_static.go). Which CPUs an amount takes is unknown.
func (f ManagerSettings) judgeCPUs(s stateFile, state kubelet.CPUState) ([]Finding, error) {
	if f.CPUPolicy != static || state.DefaultCPUSet == "" || len(f.CPUs) == 0 {
		return nil, nil
	}
	shared, err := topology.ParseCPUSet(state.DefaultCPUSet)
	if err != nil {
		return nil, fmt.Errorf("read defaultCpuSet of %s: %w", s.path, err)
	}
	known := maps.Clone(shared)
	for _, containers := range state.Entries {
		for _, list := range containers {
			own, err := topology.ParseCPUSet(list)
			if err != nil {
				return nil, fmt.Errorf("read entries of %s: %w", s.path, err)
			}
			maps.Copy(known, own)
		}
	}
	stale := func(summary, evidence string) ([]Finding, error) {
		return s.stale(summary, "The kubelet will not start again.", "defaultCpuSet "+state.DefaultCPUSet,
			evidence), nil
	}
	all := f.AllCPUs()
	if named, err := f.Reserved(); err == nil && f.ReservedCPUs != "" {
		strict := f.CPUOptions["strict-cpu-reservation"] == "true"
		kept := len(named.Without(shared)) == 0
		switch {
		case strict && len(shared.Without(named)) < len(shared):
			return stale("Strictly reserved CPUs are in the shared pool of cpu_manager_state.",
				"reserved: "+named.String())
		case !strict && !kept:
			return stale("Reserved CPUs are assigned to containers in cpu_manager_state.",
				"reserved: "+named.String())
		case strict:
			all = all.Without(named)
		}
	}
	if len(all.Without(known)) > 0 || len(known.Without(all)) > 0 {
		return stale("The CPUs in cpu_manager_state are not those of the machine.",
			"CPUs of this machine: "+all.String())
	}
	return nil, nil
}
