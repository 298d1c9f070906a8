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
	return keepProven(slices.Concat(unknownPolicies(f), badOptions(f), findContradictions(f),
		wrongReservedCPUs(f), missingReservations(f)))
}

func unknownPolicies(f ManagerSettings) (findings []Finding) {
	for _, s := range []struct {
		id, key, value string
		known          []string
	}{
		{"topology-policy", "topologyManagerPolicy", f.Policy, []string{
			"none", "best-effort", restricted, singleNode,
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

// findContradictions finds values that contradict each other, or the machine.
func findContradictions(f ManagerSettings) []Finding {
	hasCgroup := f.SystemReservedCgroup != "" || f.KubeReservedCgroup != ""
	return []Finding{
		{
			ID: "many-numa-nodes", Severity: Error,
			Summary: fmt.Sprintf("The machine has %d NUMA nodes, and the kubelet allows %d.",
				f.NUMANodes, f.AllowedNodes()),
			Evidence: evidenceIf(f.Policy != "none" && f.NUMANodes > f.AllowedNodes(), f.optionsSay()),
			Why:      "With a Topology Manager policy the kubelet does not start.",
			Fix: []string{
				"fewer nodes: NPS or sub-NUMA clustering in the firmware",
				fmt.Sprintf("or, from Kubernetes 1.31 on, topologyManagerPolicyOptions: {%s: \"%d\"}; "+
					"admission becomes slower with every node", maxNodesOption, f.NUMANodes),
			},
		},
		{
			ID: "reserved-cpus", Severity: Error,
			Summary: "The kubelet has reservedSystemCPUs together with systemReservedCgroup or kubeReservedCgroup.",
			Evidence: evidenceIf(f.ReservedCPUs != "" && hasCgroup,
				f.Says("reservedSystemCPUs", f.ReservedCPUs), f.Says("systemReservedCgroup", f.SystemReservedCgroup),
				f.Says("kubeReservedCgroup", f.KubeReservedCgroup)),
			Why: "The kubelet accepts either named CPUs or a cgroup, and does not start with both.",
			Fix: []string{"reserve an amount: cpu in systemReserved and kubeReserved, without reservedSystemCPUs"},
		},
	}
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
	reserved, err := f.ReservedSet()
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

// missingReservations finds reserved amounts that are none, and managers without those that they need.
func missingReservations(f ManagerSettings) []Finding {
	_, err := f.ReservedAmount()
	return []Finding{
		{
			ID: "reserved-cpus", Severity: Error,
			Summary: "The kubelet has a reserved amount that is no quantity.",
			Evidence: evidenceIf(err != nil, f.Says("kubeReserved", fmt.Sprint(f.KubeReserved)),
				f.Says("systemReserved", fmt.Sprint(f.SystemReserved))),
			Why: "The kubelet does not start.",
			Fix: []string{fmt.Sprint(err)},
		},
		{
			ID: "reserved-cpus", Severity: Error,
			Summary: "The kubelet's CPU manager is static, and no CPU is reserved for the system.",
			Evidence: evidenceIf(f.CPUPolicy == static && !f.HasReserved(),
				f.Says("reservedSystemCPUs", strconv.Quote(f.ReservedCPUs)),
				f.Says("kubeReserved", fmt.Sprint(f.KubeReserved)),
				f.Says("systemReserved", fmt.Sprint(f.SystemReserved))),
			Why: "The kubelet does not start: the static policy requires reservedSystemCPUs, " +
				"or CPUs in kubeReserved or systemReserved.",
			Fix: []string{staticCPUs("reservedSystemCPUs: \"" + f.FirstCPUs() + "\"")},
		},
		{
			ID: "reserved-memory", Severity: Error,
			Summary: "The kubelet's memory manager is static, and no memory is reserved.",
			Evidence: evidenceIf(f.MemoryPolicy == "Static" && len(f.ReservedMemory) == 0,
				f.Says("memoryManagerPolicy", "Static"), f.Says("reservedMemory", "none")),
			Why: "The kubelet does not start: the static policy requires reservedMemory equal to kubeReserved, " +
				"systemReserved and the eviction limit in total.",
			Fix: []string{"reservedMemory: [{numaNode: 0, limits: {memory: SUM}}]"},
		},
	}
}

// adviseSettings checks settings with which the kubelet starts, apart from [adviseTopologyPolicy]. Between
// two NUMA nodes there is only one distance. The kubelet has read its files at its start.
func adviseSettings(f ManagerSettings) []Finding {
	far := f.NUMANodes > 2 && f.PolicyOptions[preferClosest] != "true"
	var changed []string
	for _, file := range f.Changed {
		changed = append(changed, f.At.Shown(file)+" is younger than the kubelet's process")
	}
	return keepProven(slices.Concat([]Finding{
		{
			ID: "topology-scope", Severity: Warning,
			Summary:  fmt.Sprintf("The kubelet's topologyManagerScope is %s.", f.Scope),
			Evidence: evidenceIf(f.Scope == "pod" && f.Policy != "none", f.Says("topologyManagerScope", f.Scope)),
			Why: "All containers of a pod together have to fit the same smallest set of NUMA nodes: pods with " +
				"sidecars that have CPUs or devices are rejected more often, without nearer pairs.",
			Fix: []string{configureSetting("topologyManagerScope: container")},
		},
		{
			ID: "closest-nodes", Severity: Warning,
			Summary: fmt.Sprintf("The kubelet does not prefer NUMA nodes that are close to each other, "+
				"and there are %d.", f.NUMANodes),
			Evidence: evidenceIf(f.Policy != "none" && far, f.optionsSay(),
				cli.Count(f.NUMANodes, "NUMA node")+" in /sys/devices/system/node/online"),
			Why: "A container that needs two nodes gets the nodes with the lowest numbers, possibly on two sockets.",
			Fix: []string{configureSetting("topologyManagerPolicyOptions: {prefer-closest-numa-nodes: \"true\"}")},
		},
		{
			ID: "cpu-manager", Severity: Warning,
			Summary:  fmt.Sprintf("The kubelet's cpuManagerPolicy is %s.", f.CPUPolicy),
			Evidence: evidenceIf(f.CPUPolicy == "none", f.Says("cpuManagerPolicy", f.CPUPolicy)),
			Why:      "The processes of a container run on CPUs of any socket, away from its GPUs and VFs.",
			Fix:      []string{staticCPUs("cpuManagerPolicy: static, with reservedSystemCPUs")},
		},
	}, wholeNodesReserved(f), []Finding{
		{
			ID: "kubelet-restart", Severity: Warning,
			Summary:  "The kubelet was started before its configuration was changed.",
			Evidence: someOf(changed),
			Why:      "The running kubelet may still use other settings than this report.",
			Fix:      []string{"drain the node, then: systemctl restart kubelet"},
		},
	}))
}

// adviseTopologyPolicy finds another policy than the one that Tandem requires.
func adviseTopologyPolicy(f ManagerSettings) []Finding {
	advice := Finding{
		ID: "topology-policy", Severity: Warning,
		Summary:  fmt.Sprintf("The kubelet's topologyManagerPolicy is %s.", f.Policy),
		Evidence: []string{f.Says("topologyManagerPolicy", f.Policy)},
		Fix:      []string{configureSetting("topologyManagerPolicy: restricted")},
	}
	switch f.Policy {
	case "none":
		advice.Severity = Error
		advice.Why = "GPUs, VFs and CPUs of a container can be on different NUMA nodes, and a container is " +
			"admitted even if its GPUs and VFs cannot be near each other."
	case "best-effort":
		advice.Why = "A container is admitted even if its GPUs and VFs come from different NUMA " +
			"nodes; then no pair is on one switch."
	case singleNode:
		advice.Why = "A container that needs the GPUs of more than one NUMA node is always rejected."
	default:
		return nil
	}
	return []Finding{advice}
}

// wholeNodesReserved finds NUMA nodes without a CPU for containers. Which CPUs an amount takes is unknown.
func wholeNodesReserved(f ManagerSettings) (findings []Finding) {
	reserved, err := f.ReservedSet()
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

// managerSettings finds settings, and state files in the kubelet's folder, with which the kubelet does not
// start or pods lose near pairs.
func managerSettings(n *Node) []Finding {
	f := n.settings
	if f.unread != nil {
		return nil
	}
	return slices.Concat(f.Refusals(), adviseSettings(f.ManagerSettings), n.staleStates())
}

// staleStates returns findings of the state files with which the kubelet does not start, or whose content is
// unknown. A missing file is not stale: the kubelet starts without it.
func (n *Node) staleStates() (stale []Finding) {
	f, dir := n.settings.ManagerSettings, n.KubeletDir
	cpus, err := kubelet.ReadCPUState(dir)
	file := stateFile{"cpu-state", kubelet.CPUStateFile, filepath.Join(dir, kubelet.CPUStateFile)}
	found := file.otherPolicy(cpus.PolicyName, f.CPUPolicy)
	if err == nil && len(found) == 0 {
		found, err = f.judgeCPUs(file, cpus)
	}
	stale = append(stale, n.judgeState(file, found, err)...)

	memory, err := kubelet.ReadMemoryState(dir)
	file = stateFile{"memory-state", kubelet.MemoryStateFile, filepath.Join(dir, kubelet.MemoryStateFile)}
	return append(stale, n.judgeState(file, file.otherPolicy(memory.PolicyName, f.MemoryPolicy), err)...)
}

// stateFile is the state that a manager keeps for the kubelet's next start.
type stateFile struct{ id, name, path string }

// judgeState returns what was found in a file that was read, otherwise why its content is unknown.
func (n *Node) judgeState(s stateFile, found []Finding, err error) []Finding {
	if err == nil {
		return found
	}
	if errors.Is(err, fs.ErrNotExist) || n.noteDenied(s.path, err) {
		return nil
	}
	return []Finding{{
		ID: s.id, Severity: Unknown,
		Summary:  fmt.Sprintf("The content of the kubelet's %s is unknown.", s.name),
		Evidence: []string{err.Error()},
		Why:      "The kubelet does not start with a damaged state file.",
		Fix:      []string{"if the kubelet does not start: " + s.removeCommand()},
	}}
}

func (s stateFile) removeCommand() string { return restartAround("rm " + s.path) }

func (s stateFile) findStale(summary, why string, evidence ...string) []Finding {
	evidence[0] = s.path + ": " + evidence[0]
	return []Finding{{
		ID: s.id, Severity: Error, Summary: summary, Evidence: evidence, Why: why,
		Fix: []string{"drain the node, then: " + s.removeCommand()},
	}}
}

func (s stateFile) otherPolicy(policy, configured string) []Finding {
	if policy == configured {
		return nil
	}
	return s.findStale(
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
		return s.findStale(summary, "The kubelet will not start again.", "defaultCpuSet "+state.DefaultCPUSet,
			evidence), nil
	}
	all := f.AllCPUs()
	if named, err := f.ReservedSet(); err == nil && f.ReservedCPUs != "" {
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
