// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/finding"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/managers"
	"github.com/tandem-k8s/tandem/cmd/tandem/offer"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
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
			if there && !known[vf.ID] {
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
	Unenforced string // why annotations are not enforced
	Unoffered  string // the GPUs that no plugin offers, and the possible causes
}

// AskPlugins asks the plugins of a run folder, on a machine with this sysfs.
func AskPlugins(ctx context.Context, runDir string, sys fs.FS) Plugins {
	if _, err := os.Lstat(coordination.SocketPath(runDir)); err != nil {
		return Plugins{} // there is nobody to wait for
	}
	answer, err := coordinator.AskStatus(ctx, runDir)
	if err != nil {
		return Plugins{}
	}
	status := coordinator.NewStatus(answer)
	plugins := Plugins{Unenforced: status.Alignment.Unenforced()}
	if !status.OffersGPUs() {
		plugins.Unoffered = coordinator.Unoffered(sys)
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
			"where it waits for NVML: gpu.runtimeClassName, or gpu.driverRoot with gpu.deviceListStrategy=cdi-cri",
		},
	})
}

// unenforced finds plugins that do not enforce annotations.
func unenforced(p Plugins) []Finding {
	return finding.When(p.Unenforced != "", Finding{
		ID: "alignment-not-enforced", Severity: Warning,
		Summary:  "The annotation tandem.dev/alignment of pods is not enforced on this node.",
		Evidence: []string{p.Unenforced},
		Why:      "A pod that requires near pairs starts with far ones, and nothing else warns.",
		Fix: []string{
			"before Kubernetes 1.37, where the kubelet signs its own certificate: Helm " +
				"kubeletCertificate=/var/lib/kubelet/pki/kubelet.crt",
			"else docs/tune.md, near pairs as a condition",
		},
	})
}

// Refused are pods that the kubelet of a node has refused for their NUMA nodes, and that nobody has deleted.
type Refused struct {
	Number  int
	Seen    []string // evidence: the names, or the source of the number
	Unknown string   // why the number is unknown; the other fields mean nothing then
}

// refusal is the kubelet's reason (ErrorTopologyAffinity in pkg/kubelet/cm/topologymanager).
const refusal = "TopologyAffinityError"

// kubeletTimeout limits the question to the kubelet, which answers in milliseconds.
const kubeletTimeout = 5 * time.Second

// IsRefused reports whether the kubelet has refused a pod for its NUMA nodes.
func IsRefused(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed && p.Status.Reason == refusal
}

// AskRefused asks the kubelet for its pods. The caller needs root's rights alone.
func AskRefused(ctx context.Context, kubeletDir string) Refused {
	ctx, cancel := context.WithTimeout(ctx, kubeletTimeout)
	defer cancel()
	pods, err := kubelet.ListPods(ctx, kubeletDir)
	if err != nil {
		return Refused{Unknown: err.Error()}
	}
	var r Refused
	for i := range pods {
		if IsRefused(&pods[i]) {
			r.Seen = append(r.Seen, pods[i].Namespace+"/"+pods[i].Name)
		}
	}
	slices.Sort(r.Seen)
	r.Number = len(r.Seen)
	return r
}

// CountedRefused returns a number of pods that the API server has counted.
func CountedRefused(number int) Refused {
	return Refused{Number: number, Seen: []string{
		"kubectl get pods -A --field-selector status.phase=Failed,spec.nodeName=NODE lists them",
	}}
}

// packing repeats the measurement of refused pods in docs/performance.md.
const packing = "Where 60 % of the GPUs are busy, 9.5 % of jobs have a refused pod with bin packing " +
	"(MostAllocated), and 0.3 % where pods are spread (simulated: docs/performance.md)."

// refusedPods finds refused pods: the scheduler counted free devices, wherever on the node these were.
func refusedPods(r Refused) []Finding {
	return finding.When(r.Number > 0, Finding{
		ID: "refused-pods", Severity: Warning,
		Summary: fmt.Sprintf("%s still there that this kubelet refused: %s.",
			finding.CountAre(r.Number, "pod"), refusal),
		Evidence: finding.Some(r.Seen),
		Why: "The default scheduler counts devices and does not know NUMA nodes. " + packing +
			" Nobody but the pods' owners removes them before a cluster has 12,500 pods that have ended.",
		Fix: []string{
			"tandem-scheduler, which sends no pod where the kubelet will refuse it: scheduler.enabled in the chart",
			"or have the default scheduler spread pods (LeastAllocated) instead of packing them",
			"the descheduler removes those that are there: deployments/descheduler/values.yaml",
		},
	})
}

// uncounted is a remark about an unknown number of refused pods, under a policy that refuses some; else "".
func uncounted(r Refused, policy string) string {
	if r.Number > 0 || r.Unknown == "" || policy != managers.Restricted && policy != "single-numa-node" {
		return ""
	}
	return "Pods that this kubelet has refused could not be counted: " + r.Unknown + ". " + packing
}
