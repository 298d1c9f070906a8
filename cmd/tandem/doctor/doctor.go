// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/settings"
	"github.com/tandem-k8s/tandem/cmd/tandem/document"
	"github.com/tandem-k8s/tandem/cmd/tandem/offer"
	"github.com/tandem-k8s/tandem/coordination/mode"
	"github.com/tandem-k8s/tandem/coordination/preference"
	"github.com/tandem-k8s/tandem/topology"
)

// Severity says how much a finding matters.
type Severity string

// The severities.
const (
	Error   Severity = "error"   // pods are refused, or no pair is on one switch
	Warning Severity = "warning" // some pods, some devices or some of the speed are lost
	Unknown Severity = "unknown" // what would tell could not be read
)

// Findings are all that was found, as -o json prints it.
type Findings struct {
	Version  document.V1 `json:"version"`
	Findings []Finding   `json:"findings"`
	// what could not be looked at, and what is to be expected of it, where that is no finding
	Remark string `json:"remark,omitempty"`
}

// Finding is one thing that stands in the way.
type Finding struct {
	ID       string   `json:"id"` // the check, as in "topology-policy"
	Severity Severity `json:"severity"`
	Summary  string   `json:"summary"` // one sentence
	Evidence []string `json:"evidence"`
	Why      string   `json:"why"`
	Fix      []string `json:"fix"` // commands, or lines of a configuration
}

// Device is a GPU or VF as the kubelet is told of it.
type Device = offer.Device

// Node is what is looked at. The folders are those of a live node or of one that is laid out elsewhere.
type Node struct {
	Sys       fs.FS // sysfs
	Tree      *topology.Tree
	GPUs, VFs []Device // what the plugins offer
	// why the VFs are those of all NICs with RDMA, and not what is offered; "" where they are that
	Guess      string
	Links      []topology.Link
	DevRoot    string // "/dev"
	KubeletDir string // "/var/lib/kubelet"
	RunDir     string // "/var/lib/kubelet/device-plugins/tandem"
	ProcRoot   string // "/proc", where the kubelet's command line is; "" for none
	// file with the kubelet's configuration; "" for the one that its command line names or
	// <KubeletDir>/config.yaml
	Config    string
	ConfigDir string    // folder with drop-ins; "" for the one that its command line names
	Now       time.Time // to compare the age of files with that of the kubelet's process
	CPUs      int       // whole CPUs that containers ask for, for the request shapes; 0 for none
	Mode      mode.Mode // that the node is in, "" for none: see RunningMode
	Notes     []string  // what the DRA driver goes without
	Refused   Refused   // see AskRefused
	Plugins   Plugins   // see AskPlugins
}

// DefaultConfig is where kubeadm puts the kubelet's configuration.
func DefaultConfig(kubeletDir string) string { return settings.Default(kubeletDir) }

// Examine goes through all checks. A node where nothing is found has an empty list, which is not nil.
func Examine(n Node) Findings {
	e := &examination{Node: n, findings: []Finding{}}
	e.readKubelet()
	checks := []func(){
		e.checkKubelet,
		e.unknownNodes, e.gpuDrivers, e.nothingOffered, e.virtualFunctions, e.links, e.accessControl, e.deviceNodes,
		e.shapes, e.refusedPods, e.plugins,
		e.kubeletSockets, e.stockPlugins, e.lostDevices, e.checkpoint, e.runFolder, e.apart, e.bothModes,
		e.rights,
	}
	if e.Mode == mode.DRA {
		checks = e.draChecks()
	}
	for _, check := range checks {
		check()
	}
	return Findings{Findings: e.findings, Remark: e.remark}
}

// examination collects findings.
type examination struct {
	Node
	kubelet  facts
	findings []Finding
	remark   string
	closed   []string // files and folders that may not be looked at
	view     *preference.View
}

func (e *examination) find(f Finding) { e.findings = append(e.findings, f) }

// findIn finds something where a list has anything, which is the evidence.
func (e *examination) findIn(list []string, f Finding) {
	if len(list) > 0 {
		f.Evidence = some(list)
		e.find(f)
	}
}

// some lists a few of many.
func some(list []string) []string {
	const few = 4
	if len(list) <= few+1 {
		return list
	}
	return append(append([]string{}, list[:few]...), fmt.Sprintf("and %d more", len(list)-few))
}

// count is "1 VF" or "3 VFs"; of "file or folder" the plural is "files or folders".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, strings.Replace(what, " or ", "s or ", 1))
}
