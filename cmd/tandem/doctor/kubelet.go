// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"maps"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/settings"
	"github.com/tandem-k8s/tandem/coordination/kubelet/configuration"
	"github.com/tandem-k8s/tandem/topology"
)

// facts are what the checks of the kubelet judge.
type facts struct {
	settings.Settings
	at        settings.Files
	numaNodes int
	cpus      map[int]topology.CPUSet // by NUMA node
	changed   []string                // files of the settings that are younger than the kubelet
}

// check judges facts. It is a function of them alone.
type check func(facts) []Finding

// judge runs checks.
func (f facts) judge(checks ...check) (findings []Finding) {
	for _, check := range checks {
		findings = append(findings, check(f)...)
	}
	return findings
}

// KubeletDir is the root folder of the kubelet that runs, or else the usual one.
func KubeletDir(procRoot string) string {
	p, _ := settings.FindProcess(procRoot) // none where it cannot be told: a finding of its own
	return p.RootDir()
}

// process is the kubelet that runs. Where it has its drop-ins need not come from there if a flag says so.
func (n Node) process() (settings.Process, error) {
	p, err := settings.FindProcess(n.ProcRoot)
	if n.ConfigDir != "" {
		err = nil
	}
	return p, err
}

// facts reads the kubelet's settings, with files of the overlay in place.
func (n Node) facts(p settings.Process, overlay settings.Overlay) (f facts, err error) {
	f.at = p.Files(settings.Files{Config: n.Config, Dir: n.ConfigDir}, n.KubeletDir)
	if f.Settings, err = settings.Read(f.at, p.Flags, overlay); err != nil {
		return f, err
	}
	if n.Sys != nil {
		f.cpus = topology.CPUs(n.Sys)
	}
	if n.Tree != nil {
		f.numaNodes = len(n.Tree.NUMANodes())
	}
	f.changed = p.ChangedSince(n.Now, f.Files...)
	return f, nil
}

// readKubelet reads the settings. That it cannot is a finding.
func (e *examination) readKubelet() {
	p, err := settings.FindProcess(e.ProcRoot)
	if err != nil {
		e.find(Finding{
			ID: "kubelet-process", Severity: Unknown,
			Summary:  "The kubelet that runs on this node cannot be told from other processes.",
			Evidence: []string{err.Error()},
			Why: "Anybody can name a process so. Files and flags of such a process are not read; those of the " +
				"kubelet are taken from their usual place.",
			Fix: []string{
				"run tandem doctor in the namespaces in which the kubelet runs",
				"name its files: --kubelet-config, --kubelet-config-dir",
			},
		})
	}
	e.kubelet, err = e.facts(p, nil)
	var wrong *configuration.FileError
	if !errors.As(err, &wrong) || e.denied(wrong.File, wrong.Err) {
		return
	}
	e.find(Finding{
		ID: "kubelet-config", Severity: Unknown,
		Summary:  "The kubelet's configuration cannot be read.",
		Evidence: []string{wrong.Error()},
		Why:      "It decides whether GPUs and VFs of a container come from the same NUMA nodes at all.",
		Fix: []string{
			"name the file: tandem doctor --kubelet-config FILE (ps -C kubelet -o args shows --config)",
		},
	})
}

// checkKubelet runs the checks of the kubelet's settings.
func (e *examination) checkKubelet() {
	if !e.kubelet.Read {
		return
	}
	e.findings = append(e.findings, e.kubelet.judge(append(refusals(), advice()...)...)...)
	stale, closed := e.kubelet.staleStates(e.KubeletDir)
	for _, s := range stale {
		e.find(s.finding)
	}
	for path, err := range closed {
		e.denied(path, err)
	}
}

// reserved are the CPUs that no container gets: those that are named or, of an amount, the lowest. Which ones
// the static policy takes of an amount depends on cores and sockets (takeByTopology in
// pkg/kubelet/cm/cpumanager); only their number on a NUMA node is to be relied on.
func (f facts) reserved() (topology.CPUSet, error) {
	if f.ReservedCPUs != "" {
		return topology.ParseCPUSet(f.ReservedCPUs)
	}
	set, all := topology.CPUSet{}, f.allCPUs()
	for n, amount := 0, f.ReservedAmount(); len(set) < amount && len(set) < len(all); n++ {
		if all[n] {
			set[n] = true
		}
	}
	return set, nil
}

// allCPUs is every CPU of the node.
func (f facts) allCPUs() topology.CPUSet {
	all := topology.CPUSet{}
	for _, set := range f.cpus {
		maps.Copy(all, set)
	}
	return all
}

// firstCPUs is the first CPU of every NUMA node: those to reserve for the system.
func (f facts) firstCPUs() string {
	set := topology.CPUSet{}
	for _, list := range f.cpus {
		for n := 0; len(list) > 0; n++ {
			if list[n] {
				set[n] = true
				break
			}
		}
	}
	if len(set) == 0 {
		return "0"
	}
	return set.String()
}

// optionsSay is the evidence for an option of the Topology Manager.
func (f facts) optionsSay() string {
	return f.Says("topologyManagerPolicyOptions", fmt.Sprint(f.PolicyOptions))
}
