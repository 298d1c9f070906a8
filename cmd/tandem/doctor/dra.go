// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/finding"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/managers"
	"github.com/tandem-k8s/tandem/cmd/tandem/document"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// unpublishedGPUs finds GPUs that the DRA driver does not publish, by the driver's notes.
func unpublishedGPUs(notes []string) []Finding {
	return finding.Of(notes, Finding{
		ID: "gpus-not-offered", Severity: Error,
		Summary: "The DRA driver publishes no GPU of this machine.",
		Why:     "No pod gets a GPU here.",
		Fix: []string{
			"look at the pod of tandem-dra on this node: kubectl logs",
			"if it waits for NVML: set gpu.driverRoot=/, or /run/nvidia/driver if the GPU operator installs it",
			"if gpu.vendor is another vendor's: set gpu.vendor=auto",
		},
	})
}

// staleResources are the resources of device plugins on a node in DRA mode.
type staleResources struct {
	seen    []string
	rejects bool // the kubelet's policy rejects pods that request the resources
}

// staleResources returns the resources of the running DRA driver that the kubelet still has from device
// plugins.
func (n Node) staleResources(k managers.Facts, c kubelet.Checkpoint) staleResources {
	s := staleResources{rejects: k.Policy == managers.Restricted || k.Policy == "single-numa-node"}
	registered := c.Registered()
	for _, r := range n.Plugins.Resources {
		if ids, known := registered[r.Name]; known {
			s.seen = append(s.seen, fmt.Sprintf("%s: %s registered, %s",
				kubelet.CheckpointPath(n.KubeletDir), r.Name, document.Count(len(ids), "device")))
		}
	}
	return s
}

// staleKubelet finds a kubelet that expects devices from device plugins that no longer run.
func staleKubelet(s staleResources) []Finding {
	f := Finding{
		ID: "kubelet-stale-resources", Severity: Warning,
		Summary: "The kubelet still has resources of device plugins, and this node is in DRA mode.",
		Why: "A kubelet with the Topology Manager policy restricted or single-numa-node rejects pods that " +
			"request these resources (TopologyAffinityError), until five minutes after the device plugins have " +
			"stopped, and as long as one of their pods runs.",
		Fix: []string{"restart the kubelet, which ends no pod: systemctl restart kubelet"},
	}
	if s.rejects {
		f.Severity = Error
	}
	return finding.OfSome(s.seen, f)
}
