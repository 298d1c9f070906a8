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

// preparedClaims is the DRA driver's checkpoint on a node in the mode of device plugins.
type preparedClaims struct {
	path   string
	damage string // reason for unknown devices of claims, "" for known ones
}

func (n Node) readClaims(a *access) preparedClaims {
	dir := filepath.Join(n.KubeletDir, "plugins", coordination.DRADriver)
	c := preparedClaims{path: filepath.Join(dir, coordination.ClaimsFile)}
	if _, err := coordination.ReadClaimHolders(dir, n.CDIDir); err != nil && !a.denied(c.path, err) {
		c.damage = fmt.Sprint(err)
	}
	return c
}

// unknownClaims finds claims of unknown devices.
func unknownClaims(c preparedClaims) []Finding {
	return findWhen(c.damage != "", Finding{
		ID: "claims", Severity: Error,
		Summary:  "The devices of prepared claims are not known.",
		Evidence: []string{c.damage},
		Why: "Any device may belong to a pod with a claim, of the time when this node was in the mode of DRA: " +
			"a plugin that starts now offers none.",
		Fix: []string{coordination.ClaimsRemedy(filepath.Dir(c.path))},
	})
}

// unpublishedGPUs finds GPUs that the DRA driver does not publish, by the driver's notes.
func unpublishedGPUs(notes []string) []Finding {
	return findEach(notes, Finding{
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
func (n Node) staleResources(k ManagerSettings, c kubelet.Checkpoint) staleResources {
	s := staleResources{rejects: k.Policy == restricted || k.Policy == "single-numa-node"}
	registered := c.Registered()
	for _, r := range n.Plugins.Resources {
		if ids, known := registered[r.Name]; known {
			s.seen = append(s.seen, fmt.Sprintf("%s: %s registered, %s",
				kubelet.CheckpointPath(n.KubeletDir), r.Name, cli.Count(len(ids), "device")))
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
	return findSome(s.seen, f)
}

// unreachedDriver returns the reason why the kubelet does not find the DRA driver.
func (n Node) unreachedDriver(a *access) string {
	dir := filepath.Join(n.KubeletDir, "plugins_registry")
	entries, err := os.ReadDir(dir)
	if a.denied(dir, err) {
		return ""
	}
	unreached := "no socket of " + coordination.DRADriver + " in " + dir
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), coordination.DRADriver+"-") {
			unreached = a.unreached(filepath.Join(dir, entry.Name()))
			if unreached == "" {
				return ""
			}
		}
	}
	return unreached
}

// draSocket finds a DRA driver that the kubelet does not find.
func draSocket(s sockets) []Finding {
	return findWhen(s.draDriver != "", Finding{
		ID: "dra-socket", Severity: Error,
		Summary:  "The kubelet cannot find the DRA driver.",
		Evidence: []string{s.draDriver},
		Why:      "No pod with a claim can start or terminate on this node.",
		Fix: []string{
			"check the log of tandem-dra on this node; its --kubelet-dir has to be the kubelet's --root-dir",
		},
	})
}

// draGates finds missing feature gates of the DRA driver.
func draGates(notes []string) []Finding {
	off := slices.DeleteFunc(slices.Clone(notes), func(note string) bool {
		return !strings.HasPrefix(note, "feature gate ")
	})
	return findEach(off, Finding{
		ID: "dra-gates", Severity: Warning,
		Summary: "The API server lacks features for pairs.",
		Why:     "Tandem then publishes a simpler form: pairs are still on one switch, but more devices stay idle.",
		Fix: []string{
			"Kubernetes 1.36 or later; before, --feature-gates=DRAPartitionableDevices=true,DRADeviceTaints=true " +
				"for kube-apiserver, kube-scheduler, kube-controller-manager and kubelet",
		},
	})
}
