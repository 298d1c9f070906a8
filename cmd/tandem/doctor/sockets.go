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

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/mode"
)

// sockets are the sockets of the kubelet and of plugins, by the reasons why nobody answers on them; "" for an
// answer.
type sockets struct {
	registration string // where plugins register
	podResources string // where Tandem asks for the devices of pods; not tried without registration
	draDriver    string // where the kubelet finds the DRA driver
	stock        []stockSocket
}

// stockSocket is a socket on which a plugin listens whose place Tandem takes.
type stockSocket struct{ plugin, path string }

func (n Node) readSockets(a *access, c kubelet.Checkpoint) (s sockets) {
	s.stock = n.stockSockets(a, slices.Sorted(maps.Keys(c.Registered())))
	if n.Mode == mode.DRA {
		s.draDriver = n.unreachedDriver(a)
		return s
	}
	s.registration = a.unreached(filepath.Join(n.KubeletDir, "device-plugins", "kubelet.sock"))
	if s.registration == "" { // else the reason is the same
		s.podResources = a.unreached(kubelet.PodResourcesSocket(n.KubeletDir))
	}
	return s
}

func (n Node) stockSockets(a *access, resources []string) (stock []stockSocket) {
	for _, folder := range []string{"device-plugins", "plugins_registry"} {
		dir := filepath.Join(n.KubeletDir, folder)
		entries, err := os.ReadDir(dir) // not every node has the second folder
		a.denied(dir, err)
		for _, entry := range entries {
			plugin := stockPlugin(entry.Name(), resources)
			path := filepath.Join(dir, entry.Name())
			if plugin == "" || entry.Type() != fs.ModeSocket {
				continue
			}
			if err := dial(path); err != nil {
				a.denied(path, err)
				continue
			}
			stock = append(stock, stockSocket{plugin, path})
		}
	}
	return stock
}

// ownSocket matches Tandem's name for a socket: the resource, and a part that is new every time.
var ownSocket = regexp.MustCompile(`-[A-Z2-7]{12}\.sock$`)

// stockPlugin names the plugin that makes a socket of this name, "" for other sockets.
func stockPlugin(socket string, resources []string) string {
	if ownSocket.MatchString(socket) {
		return ""
	}
	for _, v := range vendors {
		if v.socket(socket) {
			return v.title + "'s device plugin"
		}
	}
	for _, r := range resources {
		if socket == strings.ReplaceAll(r, "/", "_")+".sock" {
			return "The SR-IOV network device plugin" // pkg/resources/server.go there
		}
	}
	return ""
}

// unreachedDriver says why the kubelet does not find the DRA driver.
func (n Node) unreachedDriver(a *access) string {
	dir := filepath.Join(n.KubeletDir, "plugins_registry")
	entries, err := os.ReadDir(dir)
	if a.denied(dir, err) {
		return ""
	}
	unreached := "no socket of " + mode.Driver + " in " + dir
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), mode.Driver+"-") {
			if unreached = a.unreached(filepath.Join(dir, entry.Name())); unreached == "" {
				return ""
			}
		}
	}
	return unreached
}

// kubeletSockets finds sockets on which the kubelet does not answer.
func kubeletSockets(s sockets) []Finding {
	switch {
	case s.registration != "":
		return []Finding{{
			ID: "kubelet-socket", Severity: Error,
			Summary:  "The kubelet does not take registrations of device plugins.",
			Evidence: []string{s.registration},
			Why:      "Without it no plugin can offer anything.",
			Fix: []string{
				"systemctl status kubelet",
				"where the kubelet has another --root-dir: kubeletDir in the chart, --kubelet-dir for the daemons and " +
					"for tandem doctor",
			},
		}}
	case s.podResources != "":
		return []Finding{{
			ID: "pod-resources", Severity: Warning,
			Summary:  "The kubelet does not tell which pod holds which devices.",
			Evidence: []string{s.podResources},
			Why: "Tandem then cannot tell when devices have become free, nor which pod is asking, " +
				"and guesses from the order of questions.",
			Fix: []string{
				"look for KubeletPodResources: false among the kubelet's feature gates (before Kubernetes 1.28)",
			},
		}}
	}
	return nil
}

// stockPlugins finds running plugins whose place Tandem takes.
func stockPlugins(s sockets) (findings []Finding) {
	for _, stock := range s.stock {
		findings = append(findings, Finding{
			ID: "stock-plugin", Severity: Error,
			Summary:  fmt.Sprintf("%s is running on this node.", stock.plugin),
			Evidence: []string{"somebody listens on " + stock.path},
			Why: "Two plugins that offer one resource hand out the same devices to different pods; " +
				"and when the one ends, the other is signed off (up to Kubernetes 1.36).",
			Fix: []string{
				"remove it from this node before Tandem comes: docs/deployers.md has the order for its chart, " +
					"YAML or operator",
			},
		})
	}
	return findings
}

// draSocket finds a DRA driver that the kubelet does not find.
func draSocket(s sockets) []Finding {
	if s.draDriver == "" {
		return nil
	}
	return []Finding{{
		ID: "dra-socket", Severity: Error,
		Summary:  "The kubelet cannot find the DRA driver.",
		Evidence: []string{s.draDriver},
		Why:      "No pod with a claim starts on this node, and none of them ends.",
		Fix: []string{
			"look at the log of tandem-dra on this node; its --kubelet-dir has to be the kubelet's --root-dir",
		},
	}}
}

// draGates finds feature gates that the DRA driver goes without; fewer are published then.
func draGates(notes []string) []Finding {
	off := slices.DeleteFunc(slices.Clone(notes), func(note string) bool {
		return !strings.HasPrefix(note, "feature gate ")
	})
	if len(off) == 0 {
		return nil
	}
	return []Finding{{
		ID: "dra-gates", Severity: Warning,
		Summary:  "The API server lacks features for pairs.",
		Evidence: off,
		Why:      "Tandem publishes a simpler form then: pairs stay on one switch, and more devices stay idle.",
		Fix: []string{
			"Kubernetes 1.36 or later; before, --feature-gates=DRAPartitionableDevices=true,DRADeviceTaints=true " +
				"for kube-apiserver, kube-scheduler, kube-controller-manager and kubelet",
		},
	}}
}
