// SPDX-License-Identifier: Apache-2.0

package managers

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/finding"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
)

// StaleStates returns findings of the state files in the kubelet's folder with which the kubelet does not
// start, or whose content is unknown. A missing file is not stale: the kubelet starts without it. denied
// notes a file that may not be read.
func (f Facts) StaleStates(dir string, denied func(path string, err error) bool) (stale []finding.Finding) {
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
	found []finding.Finding, err error, denied func(path string, err error) bool,
) []finding.Finding {
	if err == nil {
		return found
	}
	if errors.Is(err, fs.ErrNotExist) || denied(s.path, err) {
		return nil
	}
	return []finding.Finding{{
		ID: s.id, Severity: finding.Unknown,
		Summary:  fmt.Sprintf("The content of the kubelet's %s is unknown.", s.name),
		Evidence: []string{err.Error()},
		Why:      "The kubelet does not start with a damaged state file.",
		Fix:      []string{"if the kubelet does not start: " + s.removal()},
	}}
}

func (s stateFile) removal() string { return Restarted("rm " + s.path) }

func (s stateFile) stale(summary, why string, evidence ...string) []finding.Finding {
	evidence[0] = s.path + ": " + evidence[0]
	return []finding.Finding{{
		ID: s.id, Severity: finding.Error, Summary: summary, Evidence: evidence, Why: why,
		Fix: []string{"drain the node, then: " + s.removal()},
	}}
}

func (s stateFile) otherPolicy(policy, configured string) []finding.Finding {
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
func (f Facts) judgeCPUs(s stateFile, state kubelet.CPUState) ([]finding.Finding, error) {
	if f.CPUPolicy != Static || state.DefaultCPUSet == "" || len(f.CPUs) == 0 {
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
	stale := func(summary, evidence string) ([]finding.Finding, error) {
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
