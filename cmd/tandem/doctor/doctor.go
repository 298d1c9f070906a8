// SPDX-License-Identifier: Apache-2.0

// Package doctor examines a node for obstacles between the node and pods whose GPUs and VFs share a switch:
// each finding has evidence, consequence and fix.
//
// [Examine] first reads all facts of a [Node], by subject: the kubelet and its settings, hardware, request
// shapes on the empty node, refused pods, plugins, sockets, checkpoint and daemons. Each check is a function
// of the facts of one subject; the method findings lists all checks in the order of the report. Doctor
// changes nothing.
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
	"github.com/tandem-k8s/tandem/topology"
)

// Examine reads a node and runs all checks. The list of findings is not nil, and empty for a healthy node.
// Evidence and remedies have the paths of the node instead of those below the root of the kubelet's process,
// also in the texts of errors.
func Examine(n Node) Findings {
	f := readFacts(n)
	findings := append([]Finding{}, f.findings()...)
	for _, one := range findings {
		for _, list := range [][]string{one.Evidence, one.Fix} {
			for i, text := range list {
				list[i] = machine.OnNode(f.kubelet.process.Root, text)
			}
		}
	}
	return Findings{Findings: findings, Remark: f.remark}
}

// facts are all facts of a node, each read once. A subject that was not read has no finding: in the mode of
// DRA the kubelet's managers align no devices, and its device manager hands none out.
type facts struct {
	recorded   bool // no other subject than hardware and shapes was read
	mode       coordination.Mode
	kubelet    kubeletFacts
	hardware   hardware
	shapes     shapes
	merge      merge
	refused    refusedFacts
	remark     string
	plugins    Plugins
	sockets    sockets
	checkpoint checkpoint
	daemons    daemons
	notes      []string // of the DRA driver
	noGPUs     []string // notes about unpublished GPUs
	claims     preparedClaims
	stale      staleResources
	closed     []string // files and folders without permission
}

func readFacts(n Node) facts {
	if n.Recorded {
		return n.recordedFacts()
	}
	var a access
	read, err := kubelet.ReadCheckpoint(n.KubeletDir)
	f := facts{
		mode: n.Mode, kubelet: n.readKubelet(&a), hardware: n.readHardware(&a), sockets: n.readSockets(&a, read),
		daemons: n.readDaemons(&a),
	}
	f.plugins = n.Plugins
	if n.Mode == coordination.DRA {
		f.notes, f.noGPUs, f.stale = n.Notes, n.NoGPUs, n.staleResources(f.kubelet.ManagerSettings, read)
	} else {
		f.shapes, f.checkpoint = n.readShapes(f.kubelet.ManagerSettings), n.newCheckpoint(&a, read, err)
		f.merge, f.refused = f.shapes.readMerge(), n.readRefused(f.kubelet.ManagerSettings)
		f.remark = strings.TrimSpace(strings.Join(slices.Concat([]string{
			f.kubelet.remarks(), uncounted(n.Refused, f.kubelet.Policy), f.shapes.remark(), mounted(n.Mounted),
		}, hintDecisions(n.Notes)), " "))
		f.claims = n.readClaims(&a)
	}
	f.closed = a.closed
	return f
}

// findings runs all checks, in the order of the report.
func (f facts) findings() []Finding {
	folders := []check[daemons]{runFolder, runFolders, bothModes}
	if f.mode == coordination.DRA {
		folders = []check[daemons]{bothModes, runFolder}
	}
	return slices.Concat(
		judgeAll(f.kubelet, unknownProcess, unreadConfig),
		judgeAll(f.shapes, topologyPolicy),
		f.kubelet.settings,
		judgeAll(f.hardware, unknownNodes, noGPU, gpuDrivers, noVF, notCreated, sriovOff, unbound, withoutRDMA,
			degradedLinks, redirects, unreadRedirects, deviceNodes),
		judgeAll(f.hardware.complexes, complexFaults, complexACS, complexATS, complexGroups),
		judgeAll(f.shapes, refusedShapes, refusedForCPUs, farShapes),
		judgeAll(f.merge, slowMerge),
		judgeAll(f.refused, refusedPods),
		judgeAll(f.plugins, unofferedGPUs, unenforced),
		judgeAll(f.sockets, registration, podResources, stockPlugins, draSocket),
		judgeAll(f.noGPUs, unpublishedGPUs),
		judgeAll(f.notes, draGates),
		judgeAll(f.stale, staleKubelet),
		judgeAll(f.daemons, silentDaemons, lostDevices, unsoundDevices),
		judgeAll(f.checkpoint, damagedCheckpoint, offeredTwice, goneDevices),
		judgeAll(f.claims, unknownClaims),
		judgeAll(f.daemons, folders...),
		judgeAll(f.closed, noRight),
		judgeAll(f.recorded, unrecorded),
	)
}

// Device is a GPU or VF as its plugin announces the device to the kubelet.
type Device = machine.Device

// Node is the input of an examination.
type Node struct {
	Kubelet
	GPUs, VFs []Device // that the plugins offer
	// why the VFs are those of all NICs with RDMA instead of the offered VFs; "" for offered VFs
	Guess   string
	Mounted string // the ConfigMap of a pod that selects the VFs; "" for none
	Links   []topology.Link
	DevRoot string   // "/dev"
	CDIDir  string   // of the CDI specifications of claims
	RunDir  string   // "/var/lib/kubelet/device-plugins/tandem"
	CPUs    int      // whole CPUs that containers request, for the request shapes; 0 for none
	Notes   []string // features that the DRA driver goes without
	NoGPUs  []string // notes of the DRA driver about GPUs that are not published
	Refused Refused  // see AskRefused
	Plugins Plugins  // see [Node.Ask]
	// Recorded means a recording: Sys, Tree, GPUs, VFs and Links alone are known.
	Recorded bool

	settings *kubeletReading // nil before they are read
	running  *running        // nil before the daemons are asked
}

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

// recordedFacts returns the facts that a recording has: the hardware, and the request shapes under the policy
// that Tandem requires.
func (n Node) recordedFacts() facts {
	var a access // a recording closes nothing
	assumed := ManagerSettings{Settings: kubelet.Settings{Policy: restricted}}
	return facts{recorded: true, hardware: n.readHardware(&a), shapes: n.readShapes(assumed)}
}

// unrecorded finds that subjects are missing in a recording.
func unrecorded(recorded bool) []Finding {
	return findWhen(recorded, Finding{
		ID: "recording", Severity: Unknown,
		Summary: "A recording tells nothing of the kubelet, the plugins, containers and device nodes.",
		Evidence: []string{
			"the hardware is judged, and requests of containers for policy " + restricted +
				" on the empty node, without CPUs",
		},
		Why: "The report lacks these checks.",
		Fix: []string{"run tandem doctor on the node, as root"},
	})
}

// access reaches files, folders and sockets, and notes those without permission. A closed file is neither
// missing nor damaged: its only finding is [noRight].
type access struct{ closed []string }

// denied reports whether an error is a lack of permission, and notes the closed path.
func (a *access) denied(path string, err error) bool {
	if !errors.Is(err, fs.ErrPermission) {
		return false
	}
	for isClosed(path) { // then a folder above is closed
		path = filepath.Dir(path)
	}
	if !slices.Contains(a.closed, path) {
		a.closed = append(a.closed, path)
	}
	return true
}

func isClosed(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrPermission)
}

// unreached says why nobody answers on a socket; "" for an answer, and for a closed socket.
func (a *access) unreached(socket string) string {
	if err := dial(socket); err != nil && !a.denied(socket, err) {
		return fmt.Sprintf("%s: %v", socket, err)
	}
	return ""
}

// dialTimeout limits a connection, which the kernel accepts however busy the process is.
const dialTimeout = time.Second

// dial returns why a socket cannot be reached, nil if a process listens.
func dial(socket string) error {
	conn, err := net.DialTimeout("unix", socket, dialTimeout)
	if err != nil {
		return errors.Unwrap(err)
	}
	return conn.Close()
}

// noRight finds the closed files and folders.
func noRight(closed []string) []Finding {
	slices.Sort(closed)
	return findSome(closed, Finding{
		ID: "no-right", Severity: Unknown,
		Summary: fmt.Sprintf("User %d is not permitted to read %s.",
			os.Geteuid(), cli.Count(len(closed), "file or folder")),
		Why: "The report lacks this data.",
		Fix: []string{
			"run tandem doctor as root: sudo tandem doctor", "in a debug container: kubectl debug --profile=sysadmin",
		},
	})
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

// check judges facts, and nothing besides them.
type check[Facts any] func(Facts) []Finding

// judgeAll runs checks on facts, in their order.
func judgeAll[Facts any](facts Facts, checks ...check[Facts]) (findings []Finding) {
	for _, check := range checks {
		findings = append(findings, check(facts)...)
	}
	return findings
}

// findWhen returns a finding if a condition holds.
func findWhen(found bool, f Finding) []Finding {
	if !found {
		return nil
	}
	return []Finding{f}
}

// findEach returns a finding with a list as its evidence, if the list is not empty.
func findEach(list []string, f Finding) []Finding {
	f.Evidence = list
	return findWhen(len(list) > 0, f)
}

// findSome returns a finding with a few elements of a list as its evidence, if the list is not empty.
func findSome(list []string, f Finding) []Finding { return findEach(someOf(list), f) }

// someOf returns a few elements of a long list, and the number of the others.
func someOf(list []string) []string {
	const few = 4
	if len(list) <= few+1 {
		return list
	}
	return append(append([]string{}, list[:few]...), fmt.Sprintf("and %d more", len(list)-few))
}
