// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"io/fs"
	"os"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/coordination"
)

// Plugins is what the running plugins say of themselves; the zero value is that of a node where none runs.
type Plugins struct {
	Unenforced string // why annotations are not enforced; "" where they are
	Unoffered  string // the GPUs that no plugin offers, and why that may be; "" for none
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

// plugins: those that run offer GPUs, and enforce annotations.
func (e *examination) plugins() {
	if text := e.Plugins.Unoffered; text != "" {
		e.find(Finding{
			ID: "gpus-not-offered", Severity: Error, Summary: "No plugin offers the GPUs of this machine.",
			Evidence: []string{text}, Why: "No pod gets a GPU here.",
			Fix: []string{
				"look at the pod of tandem-gpu on this node: kubectl logs, and /readyz",
				"where it waits for NVML: gpu.runtimeClassName, or gpu.driverRoot with gpu.deviceListStrategy=cdi-cri",
			},
		})
	}
	if text := e.Plugins.Unenforced; text != "" {
		e.find(Finding{
			ID: "alignment-not-enforced", Severity: Warning,
			Summary:  "The annotation tandem.dev/alignment of pods is not enforced on this node.",
			Evidence: []string{text},
			Why:      "A pod that requires near pairs starts with far ones, and nothing else warns.",
			Fix: []string{
				"before Kubernetes 1.37, where the kubelet signs its own certificate: Helm " +
					"kubeletCertificate=/var/lib/kubelet/pki/kubelet.crt",
				"else docs/tune.md, near pairs as a condition",
			},
		})
	}
}
