// SPDX-License-Identifier: Apache-2.0

package managers

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/finding"
	"github.com/tandem-k8s/tandem/topology"
)

// stateFile is the state that the CPU and Memory Managers keep for the kubelet's next start
// (pkg/kubelet/cm/cpumanager/state/checkpoint.go).
type stateFile struct {
	PolicyName    string          `json:"policyName"`
	DefaultCPUSet string          `json:"defaultCpuSet"`
	Entries       json.RawMessage `json:"entries"` // of the CPU manager: pod, container, CPUs
}

// StaleState is a state file with which the kubelet does not start.
type StaleState struct {
	Path    string
	Finding finding.Finding
}

// StaleStates returns the stale state files in the kubelet's folder, and the files that may not be read. With
// unknown settings no file is stale.
func (f Facts) StaleStates(dir string) (stale []StaleState, closed map[string]error) {
	closed = map[string]error{}
	if !f.Read {
		return nil, nil
	}
	for _, s := range []struct {
		id, name, policy string
		problem          func(stateFile) (summary, evidence string)
	}{
		{"cpu-state", "cpu_manager_state", f.CPUPolicy, f.cpuStateProblem},
		{"memory-state", "memory_manager_state", f.MemoryPolicy, func(stateFile) (_, _ string) { return "", "" }},
	} {
		path := filepath.Join(dir, s.name)
		content, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if errors.Is(err, fs.ErrPermission) {
			closed[path] = err
			continue
		}
		var state stateFile
		if err == nil {
			err = json.Unmarshal(content, &state)
		}
		found := finding.Finding{
			ID: s.id, Severity: finding.Error, Fix: []string{"drain the node, then: " + Restarted("rm "+path)},
		}
		switch {
		case err != nil:
			found.Summary = fmt.Sprintf("The kubelet's %s cannot be read.", s.name)
			found.Evidence = []string{fmt.Sprintf("%s: %v", path, err)}
			found.Why = "The kubelet does not start with a damaged state file."
		case state.PolicyName != s.policy:
			found.Summary = fmt.Sprintf("The kubelet's %s is of the policy %s, and %s is configured.",
				s.name, state.PolicyName, s.policy)
			found.Evidence = []string{fmt.Sprintf("%s: policyName %s", path, state.PolicyName)}
			found.Why = "The kubelet will not start again: the file has to be removed whenever the policy " +
				"changes."
		default:
			summary, evidence := s.problem(state)
			if summary == "" {
				continue
			}
			found.Summary = summary
			found.Evidence = []string{path + ": defaultCpuSet " + state.DefaultCPUSet, evidence}
			found.Why = "The kubelet will not start again."
		}
		stale = append(stale, StaleState{path, found})
	}
	return stale, closed
}

// cpuStateProblem repeats the checks of the static policy at the kubelet's start (validateState in
// pkg/kubelet/cm/cpumanager/policy_static.go). Which CPUs an amount takes is unknown.
func (f Facts) cpuStateProblem(state stateFile) (summary, evidence string) {
	shared, err := topology.ParseCPUSet(state.DefaultCPUSet)
	if f.CPUPolicy != Static || state.DefaultCPUSet == "" || len(f.CPUs) == 0 || err != nil {
		return "", ""
	}
	all := f.AllCPUs()
	if named, err := f.Reserved(); err == nil && f.ReservedCPUs != "" {
		strict := f.CPUOptions["strict-cpu-reservation"] == "true"
		kept := len(named.Without(shared)) == 0
		switch {
		case strict && len(shared.Without(named)) < len(shared):
			return "Strictly reserved CPUs are in the shared pool of cpu_manager_state.",
				"reserved: " + named.String()
		case !strict && !kept:
			return "Reserved CPUs are assigned to containers in cpu_manager_state.",
				"reserved: " + named.String()
		case strict:
			all = all.Without(named)
		}
	}
	known := maps.Clone(shared)
	var entries map[string]map[string]string
	_ = json.Unmarshal(state.Entries, &entries) // absent where no container has CPUs
	for _, containers := range entries {
		for _, list := range containers {
			if own, err := topology.ParseCPUSet(list); err == nil {
				maps.Copy(known, own)
			}
		}
	}
	if len(all.Without(known)) > 0 || len(known.Without(all)) > 0 {
		return "The CPUs in cpu_manager_state are not those of the machine.",
			"CPUs of this machine: " + all.String()
	}
	return "", ""
}
