// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// dialTimeout is how long a socket is given to take a connection: the kernel does that, whatever the process
// is busy with.
const dialTimeout = time.Second

// dial tells why a socket cannot be reached, nil where somebody listens.
func dial(path string) error {
	conn, err := net.DialTimeout("unix", path, dialTimeout)
	if err != nil {
		return errors.Unwrap(err)
	}
	return conn.Close()
}

// kubeletSockets: where plugins register, and where Tandem asks who holds what.
func (e *examination) kubeletSockets() {
	registration := filepath.Join(e.KubeletDir, "device-plugins", "kubelet.sock")
	if err := dial(registration); err != nil && !e.denied(registration, err) {
		e.find(Finding{
			ID: "kubelet-socket", Severity: Error,
			Summary:  "The kubelet does not take registrations of device plugins.",
			Evidence: []string{fmt.Sprintf("%s: %v", registration, err)},
			Why:      "Without it no plugin can offer anything.",
			Fix: []string{
				"systemctl status kubelet",
				"where the kubelet has another --root-dir: kubeletDir in the chart, --kubelet-dir for the daemons and " +
					"for tandem doctor",
			},
		})
		return // what else is missing has the same reason
	}
	owners := kubelet.PodResourcesSocket(e.KubeletDir)
	if err := dial(owners); err != nil && !e.denied(owners, err) {
		e.find(Finding{
			ID: "pod-resources", Severity: Warning,
			Summary:  "The kubelet does not tell which pod holds which devices.",
			Evidence: []string{fmt.Sprintf("%s: %v", owners, err)},
			Why: "Tandem then cannot tell when devices have become free, nor which pod is asking, " +
				"and guesses from the order of questions.",
			Fix: []string{
				"look for KubeletPodResources: false among the kubelet's feature gates (before Kubernetes 1.28)",
			},
		})
	}
}

// ownSocket is how Tandem names a socket: the resource, and a part that is new every time.
var ownSocket = regexp.MustCompile(`-[A-Z2-7]{12}\.sock$`)

// stockPlugins looks for sockets of the plugins that Tandem takes the place of: somebody listens there.
func (e *examination) stockPlugins() {
	resources := e.registered()
	for _, folder := range []string{"device-plugins", "plugins_registry"} {
		dir := filepath.Join(e.KubeletDir, folder)
		entries, err := os.ReadDir(dir) // the second one is not everywhere
		e.denied(dir, err)
		for _, entry := range entries {
			name := entry.Name()
			plugin := stockPlugin(name, resources)
			path := filepath.Join(dir, name)
			if plugin == "" || entry.Type() != fs.ModeSocket {
				continue
			}
			if err := dial(path); err != nil {
				e.denied(path, err)
				continue
			}
			e.find(Finding{
				ID: "stock-plugin", Severity: Error,
				Summary:  fmt.Sprintf("%s is running on this node.", plugin),
				Evidence: []string{"somebody listens on " + path},
				Why: "Two plugins that offer one resource hand out the same devices to different pods; " +
					"and when the one ends, the other is signed off (up to Kubernetes 1.36).",
				Fix: []string{
					"remove it from this node before Tandem comes: docs/deployers.md has the order for its chart, " +
						"YAML or operator",
				},
			})
		}
	}
}

// stockPlugin names the plugin that makes a socket of this name, "" for another's.
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

// askTimeout bounds the questions to the running daemons and to the kubelet.
const askTimeout = 5 * time.Second

// lostDevices compares what the running daemons offer with what the kubelet has to give, twice where they
// differ: a list may be on its way.
func (e *examination) lostDevices() {
	if dial(coordination.SocketPath(e.RunDir)) != nil {
		return // nothing is offered
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	pods, err := kubelet.NewPodResources(e.KubeletDir)
	if err != nil {
		return // kubeletSockets tells
	}
	defer pods.Close()
	lost := e.lost(ctx, pods)
	if len(lost) > 0 {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
		lost = e.lost(ctx, pods)
	}
	if len(lost) == 0 {
		return
	}
	e.find(Finding{
		ID: "kubelet-devices", Severity: Error,
		Summary:  "The kubelet does not go by the devices that Tandem offers.",
		Evidence: lost,
		Why: "A plugin that registers the same resource later takes its place. When it goes, " +
			"a kubelet before 1.37 has no devices any more, and a later one keeps the list of the plugin " +
			"that is gone.",
		Fix: []string{
			"remove the other plugin from this node: docs/deployers.md has the order for its chart, " +
				"YAML or operator",
			"Tandem registers again once it is gone; where it does not within a minute, delete Tandem's pod of that " +
				"resource on this node",
		},
	})
}

// lost says for each resource how the kubelet's healthy devices differ from those of its daemon; nothing
// where either does not answer.
func (e *examination) lost(ctx context.Context, pods *kubelet.PodResources) (lost []string) {
	status, err := coordination.Status(ctx, e.RunDir)
	if err != nil {
		return nil
	}
	has, err := pods.Allocatable(ctx)
	if err != nil {
		return nil
	}
	for _, r := range status.GetResources() {
		offered, kept := 0, 0
		for _, d := range r.GetDevices() {
			if !d.GetDevice().GetHealthy() {
				continue
			}
			offered++
			if slices.Contains(has[r.GetName()], d.GetDevice().GetId()) {
				kept++
			}
		}
		if others := len(has[r.GetName()]) - kept; r.GetConnected() && (kept < offered || others > 0) {
			lost = append(lost, fmt.Sprintf("%s: the kubelet has %d of the %d healthy devices that are offered, "+
				"and %d others", r.GetName(), kept, offered, others))
		}
	}
	return lost
}

// apart: each of the daemons serves the other one, in a folder of its own.
func (e *examination) apart() {
	if dial(coordination.SocketPath(e.RunDir)) != nil {
		return
	}
	for _, other := range coordination.RunDirs(e.KubeletDir) {
		if other == e.RunDir || dial(coordination.SocketPath(other)) != nil {
			continue
		}
		e.find(Finding{
			ID: "run-folders", Severity: Error,
			Summary:  "The two daemons do not meet.",
			Evidence: []string{fmt.Sprintf("one serves in %s and another in %s", e.RunDir, other)},
			Why:      "Each of them chooses for itself, and pairs are a matter of luck.",
			Fix: []string{
				"tell both the same --run-dir, or none: they meet in " + coordination.RunDir(e.KubeletDir) + " then",
			},
		})
	}
}

// runFolder: where the two daemons meet has to be root's alone, which they see to when they can.
func (e *examination) runFolder() {
	var problem string
	info, err := os.Lstat(e.RunDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return // it is made
	case e.denied(e.RunDir, err):
		return
	case err != nil:
		problem = err.Error()
	case !info.IsDir():
		problem = fmt.Sprintf("%s is no folder: %s", e.RunDir, info.Mode())
	case owner(info) != os.Geteuid() && owner(info) != 0: // the daemons are root, or who looks
		problem = fmt.Sprintf("%s is owned by user %d", e.RunDir, owner(info))
	default:
		socket := coordination.SocketPath(e.RunDir)
		err := coordination.CheckSocketPlace(socket)
		if err == nil || e.denied(socket, err) {
			return
		}
		problem = err.Error()
	}
	e.find(Finding{
		ID: "run-folder", Severity: Error,
		Summary:  "The two daemons cannot meet in their folder.",
		Evidence: []string{problem},
		Why:      "Each of them then chooses for itself, and pairs are a matter of luck.",
		Fix:      []string{"rm -r " + e.RunDir + ": the daemons make it anew; or another runDir"},
	})
}

func owner(info fs.FileInfo) int {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid)
	}
	return -1
}

// offered are the IDs of all devices.
func (e *examination) offered() []string {
	var ids []string
	for _, d := range slices.Concat(e.GPUs, e.VFs) {
		ids = append(ids, d.ID)
	}
	return ids
}
