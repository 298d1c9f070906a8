// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/plugins/gpu"
)

// draChecks are the checks of a node in the mode of DRA.
var draChecks = []check{
	{
		id: "dra-socket", severity: Error, in: ofDRA,
		summary: "The kubelet cannot find the DRA driver.",
		why:     "No pod with a claim can start or terminate on this node.",
		fix: []string{
			"check the log of tandem-dra on this node; its --kubelet-dir has to be the kubelet's --root-dir",
		},
		find: func(n *Node, f *Finding) { f.Evidence = evidenceOf(n.unreachedDriver()) },
	},
	{ // by the driver's notes
		id: "gpus-not-offered", severity: Error, in: ofDRA,
		summary: "The DRA driver publishes no GPU of this machine.",
		why:     "No pod gets a GPU here.",
		fix: []string{
			"look at the pod of tandem-dra on this node: kubectl logs",
			"if it waits for NVML: set gpu.driverRoot=/, or /run/nvidia/driver if the GPU operator installs it",
			"if gpu.vendor is another vendor's: set gpu.vendor=auto",
		},
		find: func(n *Node, f *Finding) { f.Evidence = n.notesWith(gpu.Unpublished) },
	},
	{
		id: "dra-gates", severity: Warning, in: ofDRA,
		summary: "The API server lacks features for pairs.",
		why: "Tandem then publishes a simpler form: pairs are still on one switch, but more devices stay " +
			"idle.",
		fix: []string{
			"Kubernetes 1.36 or later; before, --feature-gates=DRAPartitionableDevices=true,DRADeviceTaints=true " +
				"for kube-apiserver, kube-scheduler, kube-controller-manager and kubelet",
		},
		find: func(n *Node, f *Finding) { f.Evidence = n.notesWith("feature gate ") },
	},
	{ // resources of the running DRA driver that the kubelet still has from device plugins
		id: "kubelet-stale-resources", severity: Warning, in: ofDRA,
		summary: "The kubelet still has resources of device plugins, and this node is in DRA mode.",
		why: "A kubelet with the Topology Manager policy restricted or single-numa-node rejects pods that " +
			"request these resources (TopologyAffinityError), until five minutes after the device plugins have " +
			"stopped, and as long as one of their pods runs.",
		fix: []string{"restart the kubelet, which ends no pod: systemctl restart kubelet"},
		find: func(n *Node, f *Finding) {
			registered := n.checkpoint.Registered()
			for _, r := range n.status.Resources {
				if ids, known := registered[r.Name]; known {
					f.addSeen("%s: %s registered, %s", kubelet.CheckpointPath(n.KubeletDir), r.Name,
						cli.Count(len(ids), "device"))
				}
			}
			f.Evidence = someOf(f.Evidence)
			if policy := n.settings.Policy; policy == restricted || policy == singleNode {
				f.Severity = Error
			}
		},
	},
}

// notesWith returns the notes of the daemons that begin with a text.
func (n *Node) notesWith(beginning string) (notes []string) {
	for _, note := range n.Notes {
		if strings.HasPrefix(note, beginning) {
			notes = append(notes, note)
		}
	}
	return notes
}

// unreachedDriver returns the reason why the kubelet does not find the DRA driver.
func (n *Node) unreachedDriver() string {
	dir := filepath.Join(n.KubeletDir, "plugins_registry")
	entries, err := os.ReadDir(dir)
	if n.noteDenied(dir, err) {
		return ""
	}
	unreached := "no socket of " + coordination.DRADriver + " in " + dir
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), coordination.DRADriver+"-") {
			unreached = n.whyUnreached(filepath.Join(dir, entry.Name()))
			if unreached == "" {
				return ""
			}
		}
	}
	return unreached
}
