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

// kubeletChecks are the checks of the kubelet's process, its settings and its state files.
var kubeletChecks = []check{
	{
		id: "kubelet-process", severity: Unknown, in: ofNodes,
		summary: "The process of this node's kubelet cannot be identified.",
		why: "Any user can start a process with the name kubelet, so that its flags and files are not read; the " +
			"kubelet's files are read at their default paths.",
		fix: []string{
			"run tandem doctor in the namespaces in which the kubelet runs",
			"name its files: --kubelet-config, --kubelet-config-dir",
		},
		find: func(n *Node, f *Finding) {
			if err := n.settings.noProcess; err != nil {
				f.addSeen("%v", err)
			}
		},
	},
	{
		id: "kubelet-config", severity: Unknown, in: ofNodes,
		summary: "The kubelet's configuration cannot be read.",
		why:     "The configuration decides whether a container's GPUs and VFs come from the same NUMA nodes.",
		fix:     []string{otherConfig},
		find: func(n *Node, f *Finding) {
			var wrong *kubelet.ConfigError
			switch err := n.settings.unread; {
			case errors.As(err, &wrong) && n.noteDenied(wrong.File, wrong.Err):
			case wrong != nil:
				f.addSeen("%v", &kubelet.ConfigError{File: n.settings.At.Shown(wrong.File), Err: wrong.Err})
			case err != nil:
				f.addSeen("%v", err)
			}
		},
	},
	{
		id: "topology-policy", severity: Warning, in: ofPlugins,
		fix:  []string{configureSetting("topologyManagerPolicy: restricted")},
		find: (*Node).findOtherPolicy,
	},
	{in: ofPlugins, each: managerSettings},
	{
		id: "cpu-state", severity: Error, in: ofPlugins,
		find: func(n *Node, f *Finding) {
			state, err := kubelet.ReadCPUState(n.KubeletDir)
			if err == nil && state.PolicyName == n.settings.CPUPolicy {
				err = n.judgeCPUs(f, state)
			}
			n.judgeState(f, kubelet.CPUStateFile, state.PolicyName, n.settings.CPUPolicy, err)
		},
	},
	{
		id: "memory-state", severity: Error, in: ofPlugins,
		find: func(n *Node, f *Finding) {
			state, err := kubelet.ReadMemoryState(n.KubeletDir)
			n.judgeState(f, kubelet.MemoryStateFile, state.PolicyName, n.settings.MemoryPolicy, err)
		},
	},
}

// managerSettings finds settings with which the kubelet does not start or pods lose near pairs.
func managerSettings(n *Node) []Finding {
	if n.settings.unread != nil {
		return nil
	}
	return slices.Concat(n.Refusals(), adviseSettings(n.settings))
}

// Refusals checks the kubelet's own conditions at its start, of the settings that Tandem reads: with a
// finding the kubelet does not start (pkg/kubelet/apis/config/validation, and the managers in
// pkg/kubelet/cm).
func (n *Node) Refusals() []Finding {
	f := n.readSettings()
	return keepProven(slices.Concat(unknownPolicies(f), badOptions(f), findContradictions(f),
		wrongReservedCPUs(f), missingReservations(f)))
}

func unknownPolicies(f *settings) (findings []Finding) {
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
func badOptions(f *settings) (findings []Finding) {
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
func findContradictions(f *settings) []Finding {
	hasCgroup := f.SystemReservedCgroup != "" || f.KubeReservedCgroup != ""
	return []Finding{
		{
			ID: "many-numa-nodes", Severity: Error,
			Summary: fmt.Sprintf("The machine has %d NUMA nodes, and the kubelet allows %d.",
				f.NUMANodes, f.allowedNodes()),
			Evidence: evidenceIf(f.Policy != "none" && f.NUMANodes > f.allowedNodes(), f.optionsSay()),
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

func wrongReservedCPUs(f *settings) []Finding {
	if f.ReservedCPUs == "" {
		return nil
	}
	wrong := Finding{
		ID: "reserved-cpus", Severity: Error,
		Evidence: []string{f.Says("reservedSystemCPUs", f.ReservedCPUs)},
		Why:      "The kubelet does not start.",
		Fix:      []string{"reservedSystemCPUs: \"" + f.firstCPUs() + "\""},
	}
	reserved, err := f.reservedSet()
	missing := reserved.Without(f.allCPUs())
	switch {
	case err != nil:
		wrong.Summary = fmt.Sprintf("reservedSystemCPUs is no list of CPUs: %v.", err)
	case len(f.CPUs) > 0 && len(missing) > 0:
		wrong.Summary = fmt.Sprintf("reservedSystemCPUs names CPUs that the machine does not have: %s.", missing)
		wrong.Evidence = append(wrong.Evidence, "CPUs of this machine: "+f.allCPUs().String())
	default:
		return nil
	}
	return []Finding{wrong}
}

// missingReservations finds reserved amounts that are none, and managers without those that they need.
func missingReservations(f *settings) []Finding {
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
			Evidence: evidenceIf(f.CPUPolicy == static && !f.hasReserved(),
				f.Says("reservedSystemCPUs", strconv.Quote(f.ReservedCPUs)),
				f.Says("kubeReserved", fmt.Sprint(f.KubeReserved)),
				f.Says("systemReserved", fmt.Sprint(f.SystemReserved))),
			Why: "The kubelet does not start: the static policy requires reservedSystemCPUs, " +
				"or CPUs in kubeReserved or systemReserved.",
			Fix: []string{configureCPUs("reservedSystemCPUs: \"" + f.firstCPUs() + "\"")},
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

// adviseSettings checks settings with which the kubelet starts, apart from [Node.findOtherPolicy]. Between
// two NUMA nodes there is only one distance. The kubelet has read its files at its start.
func adviseSettings(f *settings) []Finding {
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
			Fix:      []string{configureCPUs("cpuManagerPolicy: static, with reservedSystemCPUs")},
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

// findOtherPolicy finds another policy than restricted, with the requests that restricted would refuse.
func (n *Node) findOtherPolicy(f *Finding) {
	k := n.settings
	switch k.Policy {
	case "none":
		f.Severity = Error
		f.Why = "GPUs, VFs and CPUs of a container can be on different NUMA nodes, and a container is " +
			"admitted even if its GPUs and VFs cannot be near each other."
	case "best-effort":
		f.Why = "A container is admitted even if its GPUs and VFs come from different NUMA " +
			"nodes; then no pair is on one switch."
	case singleNode:
		f.Why = "A container that needs the GPUs of more than one NUMA node is always rejected."
	default:
		return
	}
	f.Summary = fmt.Sprintf("The kubelet's topologyManagerPolicy is %s.", k.Policy)
	f.Evidence = append([]string{k.Says("topologyManagerPolicy", k.Policy)}, n.shapes.wouldRefuse()...)
	f.Fix = append(f.Fix, n.shapes.listRemedies()...)
}

// wholeNodesReserved finds NUMA nodes without a CPU for containers. Which CPUs an amount takes is unknown.
func wholeNodesReserved(f *settings) (findings []Finding) {
	reserved, err := f.reservedSet()
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
			Fix: []string{"spread reservedSystemCPUs over all nodes: \"" + f.firstCPUs() + "\""},
		})
	}
	return findings
}

// judgeState completes the finding of a state file, which a manager keeps for the kubelet's next start: with
// another policy than the configured one the kubelet does not start; with an error the content is unknown. A
// missing file is not stale: the kubelet starts without it.
func (n *Node) judgeState(f *Finding, name, policy, configured string, err error) {
	path := filepath.Join(n.KubeletDir, name)
	remove := restartAround("rm " + path)
	f.Fix = []string{"drain the node, then: " + remove}
	switch {
	case n.settings.unread != nil:
	case err == nil && policy != configured:
		f.Summary = fmt.Sprintf("The kubelet's %s is of the policy %s, and %s is configured.", name, policy,
			configured)
		f.Why = "The kubelet will not start again: the file has to be removed whenever the policy changes."
		f.addSeen("%s: policyName %s", path, policy)
	case err != nil && !errors.Is(err, fs.ErrNotExist) && !n.noteDenied(path, err):
		f.Severity, f.Summary = Unknown, fmt.Sprintf("The content of the kubelet's %s is unknown.", name)
		f.addSeen("%v", err)
		f.Why = "The kubelet does not start with a damaged state file."
		f.Fix = []string{"if the kubelet does not start: " + remove}
	}
}

// judgeCPUs repeats the checks of the static policy at the kubelet's start (validateState in
// pkg/kubelet/cm/cpumanager/policy_static.go). Which CPUs an amount takes is unknown.
func (n *Node) judgeCPUs(f *Finding, state kubelet.CPUState) error {
	k, path := n.settings, filepath.Join(n.KubeletDir, kubelet.CPUStateFile)
	if k.CPUPolicy != static || state.DefaultCPUSet == "" || len(k.CPUs) == 0 {
		return nil
	}
	shared, err := topology.ParseCPUSet(state.DefaultCPUSet)
	if err != nil {
		return fmt.Errorf("read defaultCpuSet of %s: %w", path, err)
	}
	known := maps.Clone(shared)
	for _, containers := range state.Entries {
		for _, list := range containers {
			own, err := topology.ParseCPUSet(list)
			if err != nil {
				return fmt.Errorf("read entries of %s: %w", path, err)
			}
			maps.Copy(known, own)
		}
	}
	all, evidence := k.allCPUs(), ""
	if named, err := k.reservedSet(); err == nil && k.ReservedCPUs != "" {
		strict := k.CPUOptions["strict-cpu-reservation"] == "true"
		evidence = "reserved: " + named.String()
		switch {
		case strict && len(shared.Without(named)) < len(shared):
			f.Summary = "Strictly reserved CPUs are in the shared pool of cpu_manager_state."
		case !strict && len(named.Without(shared)) > 0:
			f.Summary = "Reserved CPUs are assigned to containers in cpu_manager_state."
		case strict:
			all = all.Without(named)
		}
	}
	if f.Summary == "" && (len(all.Without(known)) > 0 || len(known.Without(all)) > 0) {
		f.Summary = "The CPUs in cpu_manager_state are not those of the machine."
		evidence = "CPUs of this machine: " + all.String()
	}
	f.Why = "The kubelet will not start again."
	f.Evidence = evidenceIf(f.Summary != "", path+": defaultCpuSet "+state.DefaultCPUSet, evidence)
	return nil
}
