// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/plugins/gpu"
)

// The programs of the device plugins.
const (
	gpuProgram  = "tandem-gpu"
	rdmaProgram = "tandem-rdma"
)

// withPods replaces the possible reasons in the notes of a status with the states of the daemons' pods, which
// the daemon that answers does not see.
func withPods(notes []string, daemons []Daemon) []string {
	notes = slices.Clone(notes)
	for i, note := range notes {
		devices, reasons, found := strings.Cut(note, coordinator.NoGPUPlugin)
		switch {
		case found:
			notes[i] = devices + coordinator.NoGPUPlugin + gpuReason(devices, reasons, daemons)
		case strings.HasPrefix(note, coordinator.NoVFPlugin):
			notes[i] = vfReason(daemons)
		}
	}
	for _, d := range daemons {
		if text := d.state(); d.Trouble != "" && !slices.ContainsFunc(notes, func(note string) bool {
			return strings.Contains(note, text)
		}) {
			notes = append(notes, text)
		}
	}
	return notes
}

// gpuReason returns the reason why tandem-gpu does not offer GPUs. The GPUs and the possible reasons are from
// the node's note.
func gpuReason(devices, reasons string, daemons []Daemon) string {
	d, found := find(daemons, gpuProgram)
	if !found || d.Trouble != "" {
		return absence(d, found, gpuProgram)
	}
	for _, m := range gpu.Makers {
		if vendor := d.Flags["vendor"]; vendor != m.Vendor && strings.Contains(devices, m.Title+"'s on PCI") {
			if _, named := gpu.MakerOf(vendor); named {
				return fmt.Sprintf("gpu.vendor is %s: set gpu.vendor=%s or auto", vendor, m.Vendor)
			}
		}
	}
	if _, waits, known := strings.Cut(reasons, " or waits for "); known {
		return "tandem-gpu waits for " + waits
	}
	return fmt.Sprintf("kubectl logs -n %s %s has the reason", d.Namespace, d.Pod)
}

// vfReason returns the note about a node on which no plugin offers VFs.
func vfReason(daemons []Daemon) string {
	d, found := find(daemons, rdmaProgram)
	if found && d.Trouble == "" {
		return coordinator.NoVFPlugin + ": " + coordinator.NoVFSelected
	}
	return coordinator.NoVFPlugin + ": " + absence(d, found, rdmaProgram)
}

// absence returns the reason why a program does not run.
func absence(d Daemon, found bool, program string) string {
	if !found {
		return "no pod of " + program + " is on this node"
	}
	return d.state()
}

// state returns the state of a daemon that does not run.
func (d Daemon) state() string { return fmt.Sprintf("%s/%s: %s", d.Namespace, d.Pod, d.Trouble) }
