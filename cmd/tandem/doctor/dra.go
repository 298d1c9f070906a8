// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// unknownClaims finds claims of unknown devices, in the DRA driver's checkpoint on a node in the mode of
// device plugins.
func unknownClaims(n *Node) []Finding {
	dir := filepath.Join(n.KubeletDir, "plugins", coordination.DRADriver)
	damage := ""
	_, err := coordination.ReadClaimHolders(dir, n.CDIDir)
	if err != nil && !n.noteDenied(filepath.Join(dir, coordination.ClaimsFile), err) {
		damage = fmt.Sprint(err)
	}
	return []Finding{{
		ID: "claims", Severity: Error,
		Summary:  "The devices of prepared claims are not known.",
		Evidence: evidenceOf(damage),
		Why: "Any device may belong to a pod with a claim, of the time when this node was in the mode of DRA: " +
			"a plugin that starts now offers none.",
		Fix: []string{coordination.ClaimsRemedy(dir)},
	}}
}

// unpublishedGPUs finds GPUs that the DRA driver does not publish, by the driver's notes.
func unpublishedGPUs(n *Node) []Finding {
	return []Finding{{
		ID: "gpus-not-offered", Severity: Error,
		Summary:  "The DRA driver publishes no GPU of this machine.",
		Evidence: n.NoGPUs,
		Why:      "No pod gets a GPU here.",
		Fix: []string{
			"look at the pod of tandem-dra on this node: kubectl logs",
			"if it waits for NVML: set gpu.driverRoot=/, or /run/nvidia/driver if the GPU operator installs it",
			"if gpu.vendor is another vendor's: set gpu.vendor=auto",
		},
	}}
}

// staleKubelet finds a kubelet that expects devices from device plugins that no longer run: resources of the
// running DRA driver that the kubelet still has from them.
func staleKubelet(n *Node) []Finding {
	var stale []string
	registered := n.checkpoint.Registered()
	for _, r := range n.Plugins.Resources {
		if ids, known := registered[r.Name]; known {
			stale = append(stale, fmt.Sprintf("%s: %s registered, %s",
				kubelet.CheckpointPath(n.KubeletDir), r.Name, cli.Count(len(ids), "device")))
		}
	}
	f := Finding{
		ID: "kubelet-stale-resources", Severity: Warning,
		Summary:  "The kubelet still has resources of device plugins, and this node is in DRA mode.",
		Evidence: someOf(stale),
		Why: "A kubelet with the Topology Manager policy restricted or single-numa-node rejects pods that " +
			"request these resources (TopologyAffinityError), until five minutes after the device plugins have " +
			"stopped, and as long as one of their pods runs.",
		Fix: []string{"restart the kubelet, which ends no pod: systemctl restart kubelet"},
	}
	if policy := n.settings.Policy; policy == restricted || policy == singleNode {
		f.Severity = Error
	}
	return []Finding{f}
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

// draSocket finds a DRA driver that the kubelet does not find.
func draSocket(n *Node) []Finding {
	return []Finding{{
		ID: "dra-socket", Severity: Error,
		Summary:  "The kubelet cannot find the DRA driver.",
		Evidence: evidenceOf(n.unreachedDriver()),
		Why:      "No pod with a claim can start or terminate on this node.",
		Fix: []string{
			"check the log of tandem-dra on this node; its --kubelet-dir has to be the kubelet's --root-dir",
		},
	}}
}

// draGates finds missing feature gates of the DRA driver.
func draGates(n *Node) []Finding {
	off := slices.DeleteFunc(slices.Clone(n.Notes), func(note string) bool {
		return !strings.HasPrefix(note, "feature gate ")
	})
	return []Finding{{
		ID: "dra-gates", Severity: Warning,
		Summary:  "The API server lacks features for pairs.",
		Evidence: off,
		Why: "Tandem then publishes a simpler form: pairs are still on one switch, but more devices stay " +
			"idle.",
		Fix: []string{
			"Kubernetes 1.36 or later; before, --feature-gates=DRAPartitionableDevices=true,DRADeviceTaints=true " +
				"for kube-apiserver, kube-scheduler, kube-controller-manager and kubelet",
		},
	}}
}
