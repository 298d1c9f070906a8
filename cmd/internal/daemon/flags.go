// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/internal/monitor"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/publish"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
	"github.com/tandem-k8s/tandem/plugins/health"
	"github.com/tandem-k8s/tandem/topology/nccl"
)

// Flags are the flags of all daemons.
type Flags struct {
	Paths
	Logging
	PreferredAllocation bool
	Registration        deviceplugin.Registration
	Intent              intent.Choice
	Policy              intent.Policy
	Kubelet             kubelet.Endpoint
	NodeName            string
	Events              bool
	Metrics             monitor.Address
	Health              monitor.Address
	DeviceHealth        health.Config

	publishing publishing

	probe   monitor.Probe
	monitor *monitor.Monitor     // nil until the daemon runs
	sender  *monitor.EventSender // nil without events
}

// account is the folder in which Kubernetes mounts the token of a pod's service account and the cluster's CA.
const account = "/var/run/secrets/kubernetes.io/serviceaccount/"

// ownCertificate is the self-signed certificate of a kubelet, below its folder.
const ownCertificate = "pki/kubelet.crt"

// publishing are the flags for the publication of the node.
type publishing struct {
	targets publish.Targets
	config  kubelet.ConfigFiles
}

// endpoint returns the kubelet's HTTPS server.
func (f Flags) endpoint() kubelet.Endpoint {
	endpoint := f.Kubelet
	endpoint.Name = f.NodeName
	if endpoint.Certificate == "" {
		endpoint.Certificate = filepath.Join(f.KubeletDir, ownCertificate)
	}
	return endpoint
}

// files returns the files of the kubelet's configuration.
func (f Flags) files() kubelet.ConfigFiles {
	files := f.publishing.config
	if files.Config == "" {
		files.Config, files.Guessed = filepath.Join(f.KubeletDir, kubelet.ConfigFile), true
	}
	return files
}

// Paths are the flags for the files of a node. The folders default to those of a live node; tests and tools
// set them to a recorded machine and to a kubelet's folder elsewhere.
type Paths struct {
	SysfsRoot    string
	DevRoot      string
	KubeletDir   string
	RunDir       string
	TopologyFile string
	CDIDir       string // of the CDI specifications of claims; of another flag of the program
}

// register adds the flags to a set.
func (p *Paths) register(set *pflag.FlagSet) {
	set.StringVar(&p.SysfsRoot, "sysfs-root", "/sys", "root of sysfs")
	set.StringVar(&p.DevRoot, "dev-root", "/dev", "folder of the device nodes")
	set.StringVar(&p.KubeletDir, "kubelet-dir", kubelet.DefaultDir, "root folder of the kubelet (--root-dir)")
	set.StringVar(&p.RunDir, "run-dir", "",
		"folder of the coordination socket, shared by tandem-gpu and tandem-rdma "+
			"(default device-plugins/tandem in --kubelet-dir)")
	set.StringVar(&p.TopologyFile, "topology-file", "",
		"NCCL topology file (NCCL_TOPO_FILE) with the PCIe switches of the machine, "+
			"for a guest with a flat PCI tree in sysfs")
}

// Sysfs returns the folder to read the machine from.
func (p Paths) Sysfs() (fs.FS, error) { return openRoot("--sysfs-root", p.SysfsRoot) }

// Dev returns the folder with the device nodes.
func (p Paths) Dev() (fs.FS, error) { return openRoot("--dev-root", p.DevRoot) }

func openRoot(flag, dir string) (fs.FS, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", flag, err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("open %s: %s is not a folder", flag, dir)
	}
	return os.DirFS(dir), nil
}

// Topology returns the file with the places of devices, or nil if the flags name none.
func (p Paths) Topology() (*nccl.File, error) {
	if p.TopologyFile == "" {
		return nil, nil
	}
	file, err := nccl.Load(p.TopologyFile)
	if err != nil {
		return nil, fmt.Errorf("use --topology-file: %w", err)
	}
	return file, nil
}

// RunFolder returns the folder of the coordination socket: --run-dir, else a folder below the kubelet's that
// every device plugin pod mounts.
func (p Paths) RunFolder() string { return cmp.Or(p.RunDir, coordination.RunDir(p.KubeletDir)) }

// alone is the time without the other daemon after which a daemon logs its absence. A rollout starts both
// within seconds if the images are present.
const alone = time.Minute

// tellAlone logs once, after a delay, that the other daemon is absent. A node may run only one daemon; if the
// node runs both, their run folders differ.
func (f Flags) tellAlone(
	ctx context.Context, log *slog.Logger, node *coordination.Node, after time.Duration,
) error {
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(after):
	}
	if node.Role() != coordination.Serves || bothKinds(node) {
		return nil
	}
	own := f.RunFolder()
	for _, other := range coordination.RunDirs(f.KubeletDir) {
		if other != own && coordination.Answers(other) {
			log.Warn("the two plugins use different run folders and choose devices independently; "+
				"set the same --run-dir for both, or omit the flag",
				"run_dir", own, "other", other)
			return nil
		}
	}
	log.Info("no plugin for the other kind of device uses the run folder; if this node runs one, "+
		"set the same --run-dir for both plugins, in a volume that both pods mount",
		"run_dir", own)
	return nil
}

// bothKinds reports whether GPUs and VFs are coordinated.
func bothKinds(node *coordination.Node) bool {
	var kinds []string
	for _, r := range node.Resources() {
		if r.GetConnected() && !slices.Contains(kinds, r.GetKind()) {
			kinds = append(kinds, r.GetKind())
		}
	}
	return slices.Contains(kinds, string(device.GPU)) && slices.Contains(kinds, string(device.VF))
}
