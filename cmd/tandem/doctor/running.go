// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/finding"
	"github.com/tandem-k8s/tandem/cmd/tandem/offer"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/mode"
	"github.com/tandem-k8s/tandem/topology"
)

// RunningMode returns the mode of a node: the mode of the daemon that serves in the run folder or, without a
// daemon, of the lock files there; "" for none. The notes are the features that the DRA driver goes without.
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

// hintDecisions returns the notes of the plugins about the NUMA hints of VFs.
func hintDecisions(notes []string) []string {
	return slices.DeleteFunc(slices.Clone(notes), func(note string) bool {
		return !strings.Contains(note, coordination.OfHints)
	})
}

// RunningVFs returns the VFs that the running tandem-rdma offers, each once.
func RunningVFs(ctx context.Context, runDir string, tree *topology.Tree) ([]offer.Device, error) {
	none := errors.New("no tandem-rdma is running")
	if _, err := os.Lstat(coordination.SocketPath(runDir)); errors.Is(err, fs.ErrNotExist) {
		return nil, none // there is nobody to wait for
	}
	answer, err := coordinator.AskStatus(ctx, runDir)
	if err != nil {
		return nil, err
	}
	var vfs []offer.Device
	err = none
	known := map[string]bool{}
	for _, r := range answer.GetResources() {
		if r.GetKind() != string(device.VF) || !r.GetConnected() {
			continue
		}
		err = nil
		for _, d := range r.GetDevices() {
			vf, there := runningDevice(d.GetDevice(), tree)
			if vf.Resource = r.GetName(); there && !known[vf.ID] {
				vfs = append(vfs, vf)
			}
			known[vf.ID] = true
		}
	}
	return vfs, err
}

// runningDevice returns a device as its plugin announces the device; false if the machine has none like that.
func runningDevice(d *api.Device, tree *topology.Tree) (running offer.Device, there bool) {
	address, err := topology.ParseAddress(d.GetAddress())
	if err != nil {
		return running, false
	}
	running.ID, running.Address = d.GetId(), address
	if d.Numa != nil {
		running.NUMA = topology.Node(int(d.GetNuma()))
	}
	_, there = tree.Device(address)
	return running, there
}

// Plugins are complaints of the running plugins; the zero value stands for none, and for a node without
// plugins.
type Plugins struct {
	Unenforced string                 // why annotations are not enforced
	Unoffered  string                 // the GPUs that no plugin offers, and the possible causes
	Resources  []coordinator.Resource // the offered resources
}

// AskPlugins asks the plugins of a run folder, on a machine with this sysfs. The vendor is the --vendor of
// tandem-gpu, "" if unknown.
func AskPlugins(ctx context.Context, runDir string, sys fs.FS, vendor string) Plugins {
	if _, err := os.Lstat(coordination.SocketPath(runDir)); err != nil {
		return Plugins{} // there is nobody to wait for
	}
	answer, err := coordinator.AskStatus(ctx, runDir)
	if err != nil {
		return Plugins{}
	}
	status := coordinator.NewStatus(answer)
	plugins := Plugins{Unenforced: status.Alignment.Unenforced(), Resources: status.Resources}
	if status.Mode != string(mode.DRA) && !status.OffersGPUs() { // the DRA driver has notes
		plugins.Unoffered = coordinator.Unoffered(sys, vendor)
	}
	return plugins
}

// unofferedGPUs finds GPUs that no running plugin offers.
func unofferedGPUs(p Plugins) []Finding {
	return finding.When(p.Unoffered != "", Finding{
		ID: "gpus-not-offered", Severity: Error, Summary: "No plugin offers the GPUs of this machine.",
		Evidence: []string{p.Unoffered}, Why: "No pod gets a GPU here.",
		Fix: []string{
			"look at the pod of tandem-gpu on this node: kubectl logs, and /readyz",
			"if gpu.vendor is another vendor's: set gpu.vendor=auto",
			"if it waits for NVML: set gpu.runtimeClassName, or gpu.driverRoot with gpu.deviceListStrategy=cdi-cri",
		},
	})
}

// unenforced finds plugins that do not enforce annotations.
func unenforced(p Plugins) []Finding {
	return finding.When(p.Unenforced != "", Finding{
		ID: "alignment-not-enforced", Severity: Warning,
		Summary:  "The annotation tandem.dev/alignment of pods is not enforced on this node.",
		Evidence: []string{p.Unenforced},
		Why:      "A pod that requires same-switch pairs starts with other pairs, without any other warning.",
		Fix: []string{
			"before Kubernetes 1.37, if the kubelet uses a self-signed certificate: Helm " +
				"kubeletCertificate=/var/lib/kubelet/pki/kubelet.crt",
			"otherwise see docs/tune.md, near pairs as a condition",
		},
	})
}
