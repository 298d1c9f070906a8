// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/topology"
)

// errNotRunning says that nobody serves in the run folder.
var errNotRunning = errors.New("no tandem-rdma is running")

// running is the status of the daemons in the run folder, without devices if nobody answers.
type running struct {
	status coordinator.Status
	err    error // why nobody answers
}

// askDaemons asks the running daemons, at its first call.
func (n *Node) askDaemons(ctx context.Context) *running {
	if n.running != nil {
		return n.running
	}
	n.running = &running{err: errNotRunning}
	if _, err := os.Lstat(coordination.SocketPath(n.RunDir)); !errors.Is(err, fs.ErrNotExist) {
		answer, err := coordinator.AskStatus(ctx, n.RunDir)
		n.running = &running{coordinator.NewStatus(answer), err}
	}
	return n.running
}

// AskMode asks the running daemons what they say of themselves, on a machine with the node's sysfs: the mode
// of the node, without a daemon by the lock files in the run folder, the notes, and the complaints of
// plugins.
func (n *Node) AskMode(ctx context.Context) {
	r := n.askDaemons(ctx)
	if r.err != nil {
		if in := coordination.RunningModes(n.RunDir); len(in) > 0 {
			n.Mode = in[0]
		}
		return
	}
	n.Mode, n.Notes = coordination.Mode(r.status.Mode), r.status.Notes
	for _, note := range n.Notes {
		if strings.HasPrefix(note, gpu.Unpublished) {
			n.NoGPUs = append(n.NoGPUs, note)
		}
	}
	n.Plugins = Plugins{Unenforced: r.status.Alignment.WhyUnenforced(), Resources: r.status.Resources}
	if n.Mode != coordination.DRA && !r.status.OffersGPUs() { // the DRA driver has notes
		n.Plugins.Unoffered = coordinator.DescribeUnoffered(n.Sys, n.Vendor)
	}
}

// Status returns the status of the running daemons, nil without an answer.
func (n *Node) Status() *coordinator.Status {
	if n.running == nil || n.running.err != nil {
		return nil
	}
	return &n.running.status
}

// hintDecisions returns the notes of the plugins about the NUMA hints of VFs.
func hintDecisions(notes []string) []string {
	return slices.DeleteFunc(slices.Clone(notes), func(note string) bool {
		return !strings.Contains(note, coordination.OfHints)
	})
}

// runningVFs returns the VFs that the running tandem-rdma offers, each once.
func (n *Node) runningVFs() ([]machine.Device, error) {
	r := n.running
	if r.err != nil {
		return nil, r.err
	}
	var vfs []machine.Device
	err, known := errNotRunning, map[string]bool{}
	for _, resource := range r.status.Resources {
		if resource.Kind != string(device.VF) || !resource.Connected {
			continue
		}
		err = nil
		for _, d := range resource.Devices {
			vf, there := runningDevice(d, n.Tree)
			vf.Resource = resource.Name
			if there && !known[vf.ID] {
				vfs = append(vfs, vf)
			}
			known[vf.ID] = true
		}
	}
	return vfs, err
}

// runningDevice returns a device as its plugin announces the device; false if the machine has none like that.
func runningDevice(d coordinator.Device, tree *topology.Tree) (running machine.Device, there bool) {
	address, err := topology.ParseAddress(d.Address)
	if err != nil {
		return running, false
	}
	running.ID, running.Address = d.ID, address
	if d.NUMA != nil {
		running.NUMA = topology.Node(int(*d.NUMA))
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

// unofferedGPUs finds GPUs that no running plugin offers.
func unofferedGPUs(n *Node) []Finding {
	return []Finding{{
		ID: "gpus-not-offered", Severity: Error, Summary: "No plugin offers the GPUs of this machine.",
		Evidence: evidenceOf(n.Plugins.Unoffered), Why: "No pod gets a GPU here.",
		Fix: []string{
			"look at the pod of tandem-gpu on this node: kubectl logs, and /readyz",
			"if gpu.vendor is another vendor's: set gpu.vendor=auto",
			"if it waits for NVML: set gpu.runtimeClassName, or gpu.driverRoot with gpu.deviceListStrategy=cdi-cri",
		},
	}}
}

// findUnenforced finds plugins that do not enforce annotations.
func findUnenforced(n *Node) []Finding {
	return []Finding{{
		ID: "alignment-not-enforced", Severity: Warning,
		Summary:  "The annotation tandem.dev/alignment of pods is not enforced on this node.",
		Evidence: evidenceOf(n.Plugins.Unenforced),
		Why:      "A pod that requires same-switch pairs starts with other pairs, without any other warning.",
		Fix: []string{
			"before Kubernetes 1.37, if the kubelet uses a self-signed certificate: Helm " +
				"kubeletCertificate=/var/lib/kubelet/pki/kubelet.crt",
			"otherwise see docs/tune.md, near pairs as a condition",
		},
	}}
}

// stockPlugins finds running plugins that Tandem replaces, by their sockets.
func stockPlugins(n *Node) (findings []Finding) {
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

// kubeletSockets finds a kubelet that accepts no registrations or does not list the devices of pods. Without
// the first socket, the second is missing for the same reason.
func kubeletSockets(n *Node) []Finding {
	if refused := n.whyUnreached(filepath.Join(n.KubeletDir, "device-plugins", "kubelet.sock")); refused != "" {
		return []Finding{{
			ID: "kubelet-socket", Severity: Error,
			Summary:  "The kubelet does not accept registrations of device plugins.",
			Evidence: []string{refused},
			Why:      "Without registration no device plugin can offer devices.",
			Fix: []string{
				"systemctl status kubelet",
				"if the kubelet has another --root-dir: set kubeletDir in the chart, --kubelet-dir for the daemons and " +
					"for tandem doctor",
			},
		}}
	}
	return []Finding{{
		ID: "pod-resources", Severity: Warning,
		Summary:  "The kubelet does not report the devices of pods (PodResources).",
		Evidence: evidenceOf(n.whyUnreached(kubelet.PodResourcesSocket(n.KubeletDir))),
		Why: "Tandem then learns neither of released devices nor of the requesting pod, " +
			"and infers both from the order of the kubelet's calls.",
		Fix: []string{
			"check the kubelet's feature gates for KubeletPodResources=false (before Kubernetes 1.28)",
		},
	}}
}
