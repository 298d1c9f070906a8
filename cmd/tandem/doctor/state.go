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
	PolicyName    string                       `json:"policyName"`
	DefaultCPUSet string                       `json:"defaultCpuSet"`
	Entries       map[string]map[string]string `json:"entries"` // pod, container, CPUs
}

// staleState compares the policy that a state file is of with the one that is configured. The file is
// returned where they agree.
func (e *examination) staleState(name, id, policy string) *stateFile {
	if !e.kubelet.read {
		return nil
	}
	path := filepath.Join(e.KubeletDir, name)
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || e.denied(path, err) {
		return nil
	}
	var state struct {
		stateFile
		Entries json.RawMessage `json:"entries"` // another shape in memory_manager_state
	}
	if err == nil {
		err = json.Unmarshal(content, &state)
	}
	fix := []string{"drain the node, then: " + restarted("rm "+path)}
	switch {
	case err != nil:
		e.find(Finding{
			ID: id, Severity: Error,
			Summary:  fmt.Sprintf("The kubelet's %s cannot be read.", name),
			Evidence: []string{fmt.Sprintf("%s: %v", path, err)},
			Why:      "The kubelet does not start with a state file that is damaged.",
			Fix:      fix,
		})
	case state.PolicyName != policy:
		e.find(Finding{
			ID: id, Severity: Error,
			Summary: fmt.Sprintf("The kubelet's %s is of the policy %s, and %s is configured.",
				name, state.PolicyName, policy),
			Evidence: []string{fmt.Sprintf("%s: policyName %s", path, state.PolicyName)},
			Why:      "When it starts next, the kubelet refuses to: the file has to go whenever the policy changes.",
			Fix:      fix,
		})
	default:
		state.stateFile.Entries = nil
		_ = json.Unmarshal(state.Entries, &state.stateFile.Entries) // of the CPU manager only
		return &state.stateFile
	}
	return nil
}

// cpuState checks what the static policy checks when it starts (validateState in
// pkg/kubelet/cm/cpumanager/policy_static.go).
func (e *examination) cpuState() {
	state := e.staleState("cpu_manager_state", "cpu-state", e.kubelet.CPUPolicy)
	nodes := topology.CPUs(e.Sys)
	if state == nil || e.kubelet.CPUPolicy != "static" || state.DefaultCPUSet == "" || len(nodes) == 0 {
		return
	}
	shared, err := topology.ParseCPUSet(state.DefaultCPUSet)
	if err != nil {
		return
	}
	path := filepath.Join(e.KubeletDir, "cpu_manager_state")
	stale := func(summary, evidence string) {
		e.find(Finding{
			ID: "cpu-state", Severity: Error,
			Summary:  summary,
			Evidence: []string{path + ": defaultCpuSet " + state.DefaultCPUSet, evidence},
			Why:      "When it starts next, the kubelet refuses to.",
			Fix:      []string{"drain the node, then: " + restarted("rm "+path)},
		})
	}
	if reserved, err := e.reserved(); err == nil && len(reserved.Without(shared)) > 0 {
		stale("CPUs that are reserved are given to containers in cpu_manager_state.",
			"reserved: "+reserved.String())
		return
	}
	known := maps.Clone(shared)
	for _, containers := range state.Entries {
		for _, list := range containers {
			if own, err := topology.ParseCPUSet(list); err == nil {
				maps.Copy(known, own)
			}
		}
	}
	if all := allCPUs(nodes); len(all.Without(known)) > 0 || len(known.Without(all)) > 0 {
		stale("The CPUs in cpu_manager_state are not those of the machine.", "CPUs of this machine: "+all.String())
	}
}

// StaleState lists the state files that the kubelet would refuse to start with.
func StaleState(n Node) []string {
	k, err := readKubelet(n)
	if err != nil {
		return nil
	}
	e := &examination{Node: n, kubelet: k}
	var stale []string
	e.cpuState()
	if len(e.findings) > 0 {
		stale = append(stale, filepath.Join(n.KubeletDir, "cpu_manager_state"))
	}
	e.findings = nil
	e.staleState("memory_manager_state", "memory-state", e.kubelet.MemoryPolicy)
	if len(e.findings) > 0 {
		stale = append(stale, filepath.Join(n.KubeletDir, "memory_manager_state"))
	}
	return stale
}
