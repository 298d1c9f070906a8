// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"github.com/tandem-k8s/tandem/topology"
)

// stateFile is what the CPU and memory managers leave for their next start
// (pkg/kubelet/cm/cpumanager/state/checkpoint.go).
type stateFile struct {
	PolicyName    string          `json:"policyName"`
	DefaultCPUSet string          `json:"defaultCpuSet"`
	Entries       json.RawMessage `json:"entries"` // of the CPU manager: pod, container, CPUs
}

// staleState is such a file with which the kubelet does not start.
type staleState struct {
	path    string
	finding Finding
}

// staleStates finds them in the kubelet's folder. Files that may not be read are closed.
func (f facts) staleStates(dir string) (stale []staleState, closed map[string]error) {
	closed = map[string]error{}
	if !f.Read {
		return nil, nil // with which settings it starts is not known
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
		fix := []string{"drain the node, then: " + restarted("rm "+path)}
		finding := Finding{ID: s.id, Severity: Error, Fix: fix}
		switch {
		case err != nil:
			finding.Summary = fmt.Sprintf("The kubelet's %s cannot be read.", s.name)
			finding.Evidence = []string{fmt.Sprintf("%s: %v", path, err)}
			finding.Why = "The kubelet does not start with a state file that is damaged."
		case state.PolicyName != s.policy:
			finding.Summary = fmt.Sprintf("The kubelet's %s is of the policy %s, and %s is configured.",
				s.name, state.PolicyName, s.policy)
			finding.Evidence = []string{fmt.Sprintf("%s: policyName %s", path, state.PolicyName)}
			finding.Why = "When it starts next, the kubelet refuses to: the file has to go whenever the policy " +
				"changes."
		default:
			summary, evidence := s.problem(state)
			if summary == "" {
				continue
			}
			finding.Summary = summary
			finding.Evidence = []string{path + ": defaultCpuSet " + state.DefaultCPUSet, evidence}
			finding.Why = "When it starts next, the kubelet refuses to."
		}
		stale = append(stale, staleState{path, finding})
	}
	return stale, closed
}

// cpuStateProblem checks what the static policy checks when it starts (validateState in
// pkg/kubelet/cm/cpumanager/policy_static.go). Of an amount nobody knows which CPUs it takes.
func (f facts) cpuStateProblem(state stateFile) (summary, evidence string) {
	shared, err := topology.ParseCPUSet(state.DefaultCPUSet)
	if f.CPUPolicy != static || state.DefaultCPUSet == "" || len(f.cpus) == 0 || err != nil {
		return "", ""
	}
	all := f.allCPUs()
	if named, err := f.reserved(); err == nil && f.ReservedCPUs != "" {
		strict := f.CPUOptions["strict-cpu-reservation"] == "true"
		kept := len(named.Without(shared)) == 0
		switch {
		case strict && len(shared.Without(named)) < len(shared):
			return "CPUs that are reserved strictly are among the shared ones in cpu_manager_state.",
				"reserved: " + named.String()
		case !strict && !kept:
			return "CPUs that are reserved are given to containers in cpu_manager_state.",
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
