// SPDX-License-Identifier: Apache-2.0

// Package doctor examines a node for obstacles between the node and pods whose GPUs and VFs share a switch:
// each finding has evidence, consequence and fix.
//
// [Node.Read] reads a [Node] once: the machine, the kubelet's settings, the status of the daemons, the
// offered devices, the refused pods. [Examine] reads the rest, and runs the checks: rows of texts, with a
// function that finds the evidence, in the order of the report. Doctor changes nothing.
//
// A kubelet's settings are judged as the kubelet's Topology, CPU and Memory Managers do. With a finding of
// [Node.Refusals], or with one of its state files, the kubelet does not start; with one of
// adviseSettings the kubelet starts, and pods lose near pairs.
//
// Request shapes are judged by the Topology Manager's own rule ([model.Kubelet]) under the policy that doctor
// requires, also before the kubelet has it, with a third demand for the CPUs of a guaranteed pod.
//
// A healthy node has no finding. An unreadable file is a finding of its own ([Unknown]) only if the file is
// expected. Files without permission are neither damaged nor missing: one finding lists all of them, and no
// fix follows from them.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// Examine reads the rest of a node, and runs all checks in the order of the report. The list of findings is
// not nil, and empty for a healthy node. Evidence and remedies have the paths of the node instead of those
// below the root of the kubelet's process, also in the texts of errors.
func Examine(n Node) Findings {
	found := Findings{Findings: []Finding{}}
	in := ofPlugins
	switch {
	case n.Recorded:
		in, n.settings = ofRecording, &settings{Settings: kubelet.Settings{Policy: restricted}}
	case n.Mode == coordination.DRA:
		in = ofDRA
	}
	n.readHardware()
	k := n.readSettings()
	if in != ofRecording {
		n.checkpoint, n.unreadCheckpoint = kubelet.ReadCheckpoint(n.KubeletDir)
		n.readDaemons(context.Background())
	}
	if in != ofDRA {
		n.shapes = n.readShapes()
	}
	switch in {
	case ofPlugins:
		found.Remark = n.listRemarks()
	case ofRecording:
		found.Remark = n.shapes.remarkFewer()
	}
	for _, one := range runChecks(&n, in, allChecks...) {
		for _, list := range [][]string{one.Evidence, one.Fix} {
			for i, text := range list {
				list[i] = k.process.OnNode(text)
			}
		}
		found.Findings = append(found.Findings, one)
	}
	return found
}

// ofHints is in each note of tandem-rdma about a decision about the NUMA hints of VFs.
const ofHints = "NUMA hints, because "

// listRemarks returns what could not be looked at, and what is to be expected of the node, where that is no
// finding.
func (n *Node) listRemarks() string {
	remarks := []string{n.remarkKubelet()}
	policy := n.settings.Policy
	if unknown := n.Refused.Unknown; unknown != "" && (policy == restricted || policy == singleNode) {
		remarks = append(remarks, "The number of pods that this kubelet rejected is unknown: "+unknown+".")
	}
	remarks = append(remarks, n.shapes.remarkFewer())
	if n.Mounted != "" {
		remarks = append(remarks, "The VFs are those of a pod's ConfigMap, "+n.Mounted+".")
	}
	for _, note := range n.Notes {
		if strings.Contains(note, ofHints) {
			remarks = append(remarks, note)
		}
	}
	return strings.TrimSpace(strings.Join(remarks, " "))
}

// check is a row of the report: the texts of a finding, and how the finding is seen on a node.
type check struct {
	id       string
	severity Severity
	in       reports // 0: all
	// summary is a sentence. With a noun, %s is the number of the things that are the evidence, of which the
	// report shows a few: "%s has no driver." is also the sentence about several.
	summary, noun string
	why           string
	fix           []string
	// find adds the evidence to the finding, and completes the texts. A finding without evidence is none.
	find func(n *Node, f *Finding)
	// each returns any number of findings, instead of the fields above.
	each func(n *Node) []Finding
}

// reports are kinds of nodes: with device plugins, in the mode of DRA, recorded.
type reports int

const (
	ofPlugins reports = 1 << iota
	ofDRA
	ofRecording
	ofNodes = ofPlugins | ofDRA
)

// allChecks are in the order of the report. In the mode of DRA the kubelet's managers align no devices, and
// its device manager hands none out.
var allChecks = slices.Concat(kubeletChecks, hardwareChecks, complexChecks, shapeChecks, podChecks,
	pluginChecks, draChecks, daemonChecks, checkpointChecks, folderChecks)

// runChecks runs the checks of a kind of node in their order.
func runChecks(n *Node, in reports, checks ...check) (findings []Finding) {
	for _, c := range checks {
		switch {
		case c.in != 0 && c.in&in == 0:
		case c.each != nil:
			findings = append(findings, c.each(n)...)
		default:
			findings = append(findings, c.examine(n))
		}
	}
	return keepProven(findings)
}

// examine returns the finding of a check, without evidence if there is none.
func (c check) examine(n *Node) Finding {
	f := Finding{ID: c.id, Severity: c.severity, Summary: c.summary, Why: c.why, Fix: slices.Clone(c.fix)}
	c.find(n, &f)
	if c.noun != "" {
		f.countSeen(c.noun)
		f.Evidence = someOf(f.Evidence)
	}
	return f
}

// countSeen puts the number of the things that are the evidence into the summary.
func (f *Finding) countSeen(noun string) {
	if strings.HasPrefix(f.Summary, "%s") && len(f.Evidence) > 1 {
		f.Summary = strings.Replace(strings.Replace(f.Summary, "%s is", "%s are", 1), " has ", " have ", 1)
	}
	f.Summary = fmt.Sprintf(f.Summary, cli.Count(len(f.Evidence), noun))
}

// keepProven returns the findings with evidence.
func keepProven(findings []Finding) []Finding {
	return slices.DeleteFunc(findings, func(f Finding) bool { return len(f.Evidence) == 0 })
}

// Findings are all findings of a node, as -o json prints them.
type Findings struct {
	Version  cli.V1    `json:"version"`
	Findings []Finding `json:"findings"`
	// what could not be looked at, and what is to be expected of it, where that is no finding
	Remark string `json:"remark,omitempty"`
}

// marks are the verdicts of the text for people.
var marks = map[Severity]cli.Verdict{Error: cli.Bad, Warning: cli.Doubtful, Unknown: cli.Doubtful}

// writeFindings writes findings for people.
func writeFindings(out *cli.Text, findings []Finding) {
	counts := map[Severity]int{}
	for _, f := range findings {
		counts[f.Severity]++
		out.Line(marks[f.Severity].Of(strings.ToUpper(string(f.Severity))), " ", f.ID, ": ", f.Summary)
		for _, seen := range f.Evidence {
			out.Row("  seen", seen)
		}
		out.Row("  why", f.Why)
		for _, fix := range f.Fix {
			out.Row("  fix", fix)
		}
		out.Line()
	}
	if len(findings) == 0 {
		out.Line(cli.Good.Of("No problem"), " prevents GPUs and VFs on the same switch on this node.")
		return
	}
	fmt.Fprintf(out, "%d found: errors %d, warnings %d, unknown %d\n", len(findings), counts[Error],
		counts[Warning], counts[Unknown])
}

// noteDenied reports whether an error is a lack of permission, and notes the closed path: it is neither
// missing nor damaged, and its only finding is [noRight].
func (n *Node) noteDenied(path string, err error) bool {
	if !errors.Is(err, fs.ErrPermission) {
		return false
	}
	for errors.Is(err, fs.ErrPermission) {
		if _, err = os.Lstat(path); errors.Is(err, fs.ErrPermission) { // then a folder above is closed
			path = filepath.Dir(path)
		}
	}
	if !slices.Contains(n.closed, path) {
		n.closed = append(n.closed, path)
	}
	return true
}

// whyUnreached says why nobody answers on a socket; "" for an answer, and for a closed socket.
func (n *Node) whyUnreached(socket string) string {
	if err := dialSocket(socket); err != nil && !n.noteDenied(socket, err) {
		return fmt.Sprintf("%s: %v", socket, err)
	}
	return ""
}

// dialTimeout limits a connection, which the kernel accepts however busy the process is.
const dialTimeout = time.Second

// dialSocket returns why a socket cannot be reached, nil if a process listens.
func dialSocket(socket string) error {
	conn, err := net.DialTimeout("unix", socket, dialTimeout)
	if err != nil {
		return errors.Unwrap(err)
	}
	return conn.Close()
}

// Severity says how much a finding matters.
type Severity string

// The severities.
const (
	Error   Severity = "error"   // pods are refused, or no pair is on one switch
	Warning Severity = "warning" // some pods, some devices or some of the speed are lost
	Unknown Severity = "unknown" // the file or socket that would tell could not be read
)

// Finding is an obstacle between a node and pairs on one switch.
type Finding struct {
	ID       string   `json:"id"` // the check, as in "topology-policy"
	Severity Severity `json:"severity"`
	Summary  string   `json:"summary"` // one sentence
	Evidence []string `json:"evidence"`
	Why      string   `json:"why"`
	Fix      []string `json:"fix"` // commands, or lines of a configuration
}

// addSeen adds evidence.
func (f *Finding) addSeen(format string, args ...any) {
	f.Evidence = append(f.Evidence, fmt.Sprintf(format, args...))
}

// evidenceOf returns a text as evidence, none if it is empty.
func evidenceOf(text string) []string { return evidenceIf(text != "", text) }

// evidenceIf returns evidence if a condition holds.
func evidenceIf(found bool, evidence ...string) []string {
	if !found {
		return nil
	}
	return evidence
}

// someOf returns a few elements of a long list, and the number of the others.
func someOf(list []string) []string {
	const few = 4
	if len(list) <= few+1 {
		return list
	}
	return append(slices.Clone(list[:few]), fmt.Sprintf("and %d more", len(list)-few))
}
