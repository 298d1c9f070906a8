// SPDX-License-Identifier: Apache-2.0

// Package doctor examines a node for obstacles between the node and pods whose GPUs and VFs share a switch:
// each finding has evidence, consequence and fix.
//
// [Node.Read] reads a [Node] once: the machine, the kubelet's settings, the status of the daemons, the
// offered devices, the refused pods. [Examine] reads the rest, and runs the checks of the node's mode, which
// are listed in the order of the report. Doctor changes nothing.
//
// A kubelet's settings are judged as the kubelet's Topology, CPU and Memory Managers do. With a finding of
// [ManagerSettings.Refusals], or with one of staleStates, the kubelet does not start; with one of
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
	"bytes"
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
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// Examine reads the rest of a node, and runs all checks in the order of the report. The list of findings is
// not nil, and empty for a healthy node. Evidence and remedies have the paths of the node instead of those
// below the root of the kubelet's process, also in the texts of errors.
func Examine(n Node) Findings {
	found := Findings{Findings: []Finding{}}
	n.readHardware()
	if n.Recorded {
		assumed := ManagerSettings{Settings: kubelet.Settings{Policy: restricted}}
		n.shapes = n.readShapes(assumed)
		found.Findings = append(found.Findings, runChecks(&n, checksOfRecording...)...)
		return found
	}
	k := n.readSettings()
	n.checkpoint, n.unreadCheckpoint = kubelet.ReadCheckpoint(n.KubeletDir)
	n.daemons = n.readDaemons()
	checks := checksOfDRA
	if n.Mode != coordination.DRA {
		n.shapes, checks = n.readShapes(k.ManagerSettings), checksOfPlugins
		found.Remark = strings.TrimSpace(strings.Join(slices.Concat([]string{
			n.remarkKubelet(), remarkUncounted(n.Refused, k.Policy), n.shapes.remarkFewer(), remarkMounted(n.Mounted),
		}, hintDecisions(n.Notes)), " "))
	}
	for _, one := range runChecks(&n, checks...) {
		for _, list := range [][]string{one.Evidence, one.Fix} {
			for i, text := range list {
				list[i] = machine.OnNode(k.process.Root, text)
			}
		}
		found.Findings = append(found.Findings, one)
	}
	return found
}

// check returns what it finds on a node. A finding without evidence is none.
type check func(n *Node) []Finding

// runChecks runs checks in their order.
func runChecks(n *Node, checks ...check) (findings []Finding) {
	for _, check := range checks {
		findings = append(findings, check(n)...)
	}
	return keepProven(findings)
}

// keepProven returns the findings with evidence.
func keepProven(findings []Finding) []Finding {
	return slices.DeleteFunc(findings, func(f Finding) bool { return len(f.Evidence) == 0 })
}

// The checks of the machine, of what the plugins are asked for on the empty node, and of what runs.
var (
	ofHardware = []check{
		unknownNodes, noGPU, gpuDrivers, noVF, notCreated, sriovOff, findUnbound, withoutRDMA, degradedLinks,
		findRedirects, unreadRedirects, deviceNodes, complexFaults, complexACS, complexATS, complexGroups,
	}
	ofShapes  = []check{refusedShapes, refusedForCPUs, farShapes}
	ofDaemons = []check{silentDaemons, lostDevices, unsoundDevices}
)

// The checks of a node by its mode, and of a recording, in the order of the report. In the mode of DRA the
// kubelet's managers align no devices, and its device manager hands none out.
var (
	checksOfPlugins = slices.Concat(
		[]check{unknownProcess, unreadConfig, topologyPolicy, managerSettings}, ofHardware, ofShapes,
		[]check{slowMerge, refusedPods, unofferedGPUs, findUnenforced, kubeletSockets, stockPlugins}, ofDaemons,
		[]check{
			damagedCheckpoint, offeredTwice, goneDevices, unknownClaims, runFolder, runFolders, bothModes, noRight,
		})
	checksOfDRA = slices.Concat(
		[]check{unknownProcess, unreadConfig}, ofHardware,
		[]check{findUnenforced, stockPlugins, draSocket, unpublishedGPUs, draGates, staleKubelet}, ofDaemons,
		[]check{bothModes, runFolder, noRight})
	checksOfRecording = slices.Concat(ofHardware, ofShapes, []check{findUnrecorded})
)

// Findings are all findings of a node, as -o json prints them.
type Findings struct {
	Version  cli.V1    `json:"version"`
	Findings []Finding `json:"findings"`
	// what could not be looked at, and what is to be expected of it, where that is no finding
	Remark string `json:"remark,omitempty"`
}

// Report is the text of findings for people.
func Report(findings []Finding) []byte {
	var out bytes.Buffer
	counts := map[Severity]int{}
	for _, f := range findings {
		counts[f.Severity]++
		fmt.Fprintf(&out, "%s %s: %s\n", strings.ToUpper(string(f.Severity)), f.ID, f.Summary)
		for _, seen := range f.Evidence {
			fmt.Fprintf(&out, "  seen  %s\n", seen)
		}
		fmt.Fprintf(&out, "  why   %s\n", f.Why)
		for _, fix := range f.Fix {
			fmt.Fprintf(&out, "  fix   %s\n", fix)
		}
		out.WriteByte('\n')
	}
	if len(findings) == 0 {
		out.WriteString("No problem prevents GPUs and VFs on the same switch on this node.\n")
		return out.Bytes()
	}
	fmt.Fprintf(&out, "%d found: errors %d, warnings %d, unknown %d\n", len(findings), counts[Error],
		counts[Warning], counts[Unknown])
	return out.Bytes()
}

// findUnrecorded finds that subjects are missing in a recording.
func findUnrecorded(*Node) []Finding {
	return []Finding{{
		ID: "recording", Severity: Unknown,
		Summary: "A recording tells nothing of the kubelet, the plugins, containers and device nodes.",
		Evidence: []string{
			"the hardware is judged, and requests of containers for policy " + restricted +
				" on the empty node, without CPUs",
		},
		Why: "The report lacks these checks.",
		Fix: []string{"run tandem doctor on the node, as root"},
	}}
}

// noteDenied reports whether an error is a lack of permission, and notes the closed path: it is neither
// missing nor damaged, and its only finding is [noRight].
func (n *Node) noteDenied(path string, err error) bool {
	if !errors.Is(err, fs.ErrPermission) {
		return false
	}
	for isClosed(path) { // then a folder above is closed
		path = filepath.Dir(path)
	}
	if !slices.Contains(n.closed, path) {
		n.closed = append(n.closed, path)
	}
	return true
}

func isClosed(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrPermission)
}

// noRight finds the closed files and folders.
func noRight(n *Node) []Finding {
	slices.Sort(n.closed)
	return []Finding{{
		ID: "no-right", Severity: Unknown,
		Summary: fmt.Sprintf("User %d is not permitted to read %s.",
			os.Geteuid(), cli.Count(len(n.closed), "file or folder")),
		Evidence: someOf(n.closed), Why: "The report lacks this data.",
		Fix: []string{
			"run tandem doctor as root: sudo tandem doctor", "in a debug container: kubectl debug --profile=sysadmin",
		},
	}}
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

// evidenceOf returns a text as evidence, none if it is empty.
func evidenceOf(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

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
	return append(append([]string{}, list[:few]...), fmt.Sprintf("and %d more", len(list)-few))
}
