// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/mode"
)

// RunningMode is the mode that a node is in, as who serves in its run folder tells or, where nobody does, as
// its lock files tell; "" where nobody is in any. The notes are what the DRA driver goes without.
func RunningMode(ctx context.Context, runDir string) (running mode.Mode, notes []string) {
	if _, err := os.Lstat(coordination.SocketPath(runDir)); err == nil {
		if answer, err := coordinator.AskStatus(ctx, runDir); err == nil {
			return mode.Mode(coordinator.NewStatus(answer).Mode), answer.GetNotes()
		}
	}
	if in := mode.Running(runDir); len(in) > 0 {
		return in[0], nil
	}
	return "", nil
}

// draChecks are those of a node in the mode of DRA: the kubelet's managers align nothing then, and its device
// manager hands nothing out.
func (e *examination) draChecks() []func() {
	return []func(){
		e.unknownNodes, e.gpuDrivers, e.nothingOffered, e.virtualFunctions, e.links, e.accessControl, e.deviceNodes,
		e.stockPlugins, e.draSocket, e.draGates, e.bothModes, e.runFolder, e.rights,
	}
}

// draSocket: somebody has to listen where the kubelet finds the driver.
func (e *examination) draSocket() {
	dir := filepath.Join(e.KubeletDir, "plugins_registry")
	entries, err := os.ReadDir(dir)
	if e.denied(dir, err) {
		return
	}
	evidence := "no socket of " + mode.Driver + " in " + dir
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), mode.Driver+"-") {
			continue
		}
		socket := filepath.Join(dir, entry.Name())
		err := dial(socket)
		if err == nil || e.denied(socket, err) {
			return
		}
		evidence = fmt.Sprintf("%s: %v", socket, err)
	}
	e.find(Finding{
		ID: "dra-socket", Severity: Error,
		Summary:  "The kubelet cannot find the DRA driver.",
		Evidence: []string{evidence},
		Why:      "No pod with a claim starts on this node, and none of them ends.",
		Fix: []string{
			"look at the log of tandem-dra on this node; its --kubelet-dir has to be the kubelet's --root-dir",
		},
	})
}

// draGates: without them less is published.
func (e *examination) draGates() {
	off := slices.DeleteFunc(slices.Clone(e.Notes), func(note string) bool {
		return !strings.HasPrefix(note, "feature gate ")
	})
	if len(off) == 0 {
		return
	}
	e.find(Finding{
		ID: "dra-gates", Severity: Warning,
		Summary:  "The API server lacks features for pairs.",
		Evidence: off,
		Why:      "Tandem publishes a simpler form then: pairs stay on one switch, and more devices stay idle.",
		Fix: []string{
			"Kubernetes 1.36 or later; before, --feature-gates=DRAPartitionableDevices=true,DRADeviceTaints=true " +
				"for kube-apiserver, kube-scheduler, kube-controller-manager and kubelet",
		},
	})
}

// bothModes: device plugins and DRA driver keep each other away, unless they were told different folders at a
// time when these could not be seen.
func (e *examination) bothModes() {
	var seen []string
	others := map[mode.Mode]bool{}
	dirs := append(coordination.RunDirs(e.KubeletDir), e.RunDir)
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		for _, m := range mode.Running(dir) {
			others[m] = true
			seen = append(seen, mode.Path(dir, m)+" is held")
		}
	}
	if len(others) < 2 {
		return
	}
	e.find(Finding{
		ID: "modes", Severity: Error,
		Summary:  "Device plugins and the DRA driver both hand out this node's devices.",
		Evidence: seen,
		Why:      "A device can be given to two pods.",
		Fix: []string{
			"take one of them off this node: docs/dra.md has the order; tell all the same --run-dir",
		},
	})
}
