// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/plugins/gpu"
)

// pluginChecks are the checks of what the running plugins say of themselves, and of the sockets.
var pluginChecks = []check{
	{
		id: "gpus-not-offered", severity: Error, in: ofPlugins,
		summary: "No plugin offers the GPUs of this machine.",
		why:     "No pod gets a GPU here.",
		fix: []string{
			"look at the pod of tandem-gpu on this node: kubectl logs, and /readyz",
			"if gpu.vendor is another vendor's: set gpu.vendor=auto",
			"if it waits for NVML: set gpu.runtimeClassName, or gpu.driverRoot with gpu.deviceListStrategy=cdi-cri",
		},
		find: func(n *Node, f *Finding) {
			if s := n.Status(); s != nil && !s.OffersGPUs() {
				f.Evidence = evidenceOf(coordinator.DescribeUnoffered(n.Sys, n.Vendor))
			}
		},
	},
	{
		id: "alignment-not-enforced", severity: Warning, in: ofNodes,
		summary: "The annotation tandem.dev/alignment of pods is not enforced on this node.",
		why:     "A pod that requires same-switch pairs starts with other pairs, without any other warning.",
		fix: []string{
			"before Kubernetes 1.37, if the kubelet uses a self-signed certificate: Helm " +
				"kubeletCertificate=/var/lib/kubelet/pki/kubelet.crt",
			"otherwise see docs/tune.md, near pairs as a condition",
		},
		find: func(n *Node, f *Finding) { f.Evidence = evidenceOf(n.status.Alignment.WhyUnenforced()) },
	},
	{
		id: "kubelet-socket", severity: Error, in: ofPlugins,
		summary: "The kubelet does not accept registrations of device plugins.",
		why:     "Without registration no device plugin can offer devices.",
		fix: []string{
			"systemctl status kubelet",
			"if the kubelet has another --root-dir: set kubeletDir in the chart, --kubelet-dir for the daemons and " +
				"for tandem doctor",
		},
		find: func(n *Node, f *Finding) { f.Evidence = evidenceOf(n.whyUnreached(n.registrationSocket())) },
	},
	{ // without the socket above, this one is missing for the same reason
		id: "pod-resources", severity: Warning, in: ofPlugins,
		summary: "The kubelet does not report the devices of pods (PodResources).",
		why: "Tandem then learns neither of released devices nor of the requesting pod, " +
			"and infers both from the order of the kubelet's calls.",
		fix: []string{
			"check the kubelet's feature gates for KubeletPodResources=false (before Kubernetes 1.28)",
		},
		find: func(n *Node, f *Finding) {
			if n.whyUnreached(n.registrationSocket()) == "" {
				f.Evidence = evidenceOf(n.whyUnreached(kubelet.PodResourcesSocket(n.KubeletDir)))
			}
		},
	},
	{in: ofNodes, each: findStockPlugins},
}

// registrationSocket is the socket at which device plugins register.
func (n *Node) registrationSocket() string {
	return filepath.Join(n.KubeletDir, "device-plugins", "kubelet.sock")
}

// findStockPlugins finds running plugins that Tandem replaces, by their sockets.
func findStockPlugins(n *Node) (findings []Finding) {
	resources := slices.Sorted(maps.Keys(n.checkpoint.Registered()))
	for _, folder := range []string{"device-plugins", "plugins_registry"} {
		dir := filepath.Join(n.KubeletDir, folder)
		entries, err := os.ReadDir(dir) // the second folder is optional
		n.noteDenied(dir, err)
		for _, entry := range entries {
			plugin := stockPlugin(entry.Name(), resources)
			path := filepath.Join(dir, entry.Name())
			if plugin == "" || entry.Type() != fs.ModeSocket {
				continue
			}
			if err := dialSocket(path); err != nil {
				n.noteDenied(path, err)
				continue
			}
			findings = append(findings, Finding{
				ID: "stock-plugin", Severity: Error,
				Summary:  fmt.Sprintf("%s is running on this node.", plugin),
				Evidence: []string{"somebody listens on " + path},
				Why: "Two plugins for one resource allocate the same devices to different pods; " +
					"and when one plugin ends, the kubelet also removes the other (up to Kubernetes 1.36).",
				Fix: []string{
					"remove it from this node before you install Tandem: docs/deployers.md has the steps for its chart, " +
						"YAML or operator",
				},
			})
		}
	}
	return findings
}

// ownSocket matches the name of Tandem's sockets: the resource and a random part.
var ownSocket = regexp.MustCompile(`-[A-Z2-7]{12}\.sock$`)

// stockPlugin returns the plugin that creates sockets with this name, "" for none.
func stockPlugin(socket string, resources []string) string {
	if ownSocket.MatchString(socket) {
		return ""
	}
	for _, m := range gpu.Makers {
		if vendors[m.Vendor].socket(socket) {
			return m.Title + "'s device plugin"
		}
	}
	for _, r := range resources {
		if socket == strings.ReplaceAll(r, "/", "_")+".sock" {
			return "The SR-IOV network device plugin" // pkg/resources/server.go there
		}
	}
	return ""
}
