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

	"github.com/tandem-k8s/tandem/cmd/internal/plainflag"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/publish"
	"github.com/tandem-k8s/tandem/coordination/version"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
	"github.com/tandem-k8s/tandem/plugins/health"
	"github.com/tandem-k8s/tandem/topology/nccl"
)

// Flags are the flags of all daemons.
type Flags struct {
	// The folders default to those of a live node; tests and tools set them to a recorded machine and to a
	// kubelet's folder elsewhere.
	SysfsRoot    string
	DevRoot      string
	KubeletDir   string
	RunDir       string
	TopologyFile string
	CDIDir       string // of the CDI specifications of claims; of another flag of the program

	PreferredAllocation bool
	Registration        deviceplugin.Registration
	Intent              intent.Choice
	Policy              intent.Policy
	Kubelet             kubelet.Endpoint
	NodeName            string
	Events              bool
	Metrics             address
	Health              address
	DeviceHealth        health.Config

	logFormat logFormat
	logLevel  slog.Level
	glog      glogFlags
	targets   publish.Targets
	config    kubelet.ConfigFiles
	probe     probe
	monitor   *monitor
	sender    *eventSender // nil without events
}

// account is the folder in which Kubernetes mounts the token of a pod's service account and the cluster's CA.
const account = "/var/run/secrets/kubernetes.io/serviceaccount/"

// ownCertificate is the self-signed certificate of a kubelet, below its folder.
const ownCertificate = "pki/kubelet.crt"

// kubeletEndpoint returns the kubelet's HTTPS server.
func (f Flags) kubeletEndpoint() kubelet.Endpoint {
	endpoint := f.Kubelet
	endpoint.Name = f.NodeName
	if endpoint.Certificate == "" {
		endpoint.Certificate = filepath.Join(f.KubeletDir, ownCertificate)
	}
	return endpoint
}

// configFiles returns the files of the kubelet's configuration.
func (f Flags) configFiles() kubelet.ConfigFiles {
	files := f.config
	if files.Config == "" {
		files.Config, files.Guessed = filepath.Join(f.KubeletDir, kubelet.ConfigFile), true
	}
	return files
}

// registerPaths adds the flags to a set.
func (f *Flags) registerPaths(set *pflag.FlagSet) {
	set.StringVar(&f.SysfsRoot, "sysfs-root", "/sys", "root of sysfs")
	set.StringVar(&f.DevRoot, "dev-root", "/dev", "folder of the device nodes")
	set.StringVar(&f.KubeletDir, "kubelet-dir", kubelet.DefaultDir, "root folder of the kubelet (--root-dir)")
	set.StringVar(&f.RunDir, "run-dir", "",
		"folder of the coordination socket, shared by tandem-gpu and tandem-rdma "+
			"(default device-plugins/tandem in --kubelet-dir)")
	set.StringVar(&f.TopologyFile, "topology-file", "",
		"NCCL topology file (NCCL_TOPO_FILE) with the PCIe switches of the machine, "+
			"for a guest with a flat PCI tree in sysfs")
}

// Sysfs returns the folder to read the machine from.
func (f Flags) Sysfs() (fs.FS, error) { return openRoot("--sysfs-root", f.SysfsRoot) }

// Dev returns the folder with the device nodes.
func (f Flags) Dev() (fs.FS, error) { return openRoot("--dev-root", f.DevRoot) }

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
func (f Flags) Topology() (*nccl.File, error) {
	if f.TopologyFile == "" {
		return nil, nil
	}
	file, err := nccl.Load(f.TopologyFile)
	if err != nil {
		return nil, fmt.Errorf("use --topology-file: %w", err)
	}
	return file, nil
}

// RunFolder returns the folder of the coordination socket: --run-dir, else a folder below the kubelet's that
// every device plugin pod mounts.
func (f Flags) RunFolder() string { return cmp.Or(f.RunDir, coordination.RunDir(f.KubeletDir)) }

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

// Register adds the flags of a device plugin to a set.
func (f *Flags) Register(set *pflag.FlagSet) {
	f.registerPaths(set)
	f.registerLogging(set)
	set.BoolVar(&f.PreferredAllocation, "preferred-allocation", true,
		"answer GetPreferredAllocation; if false, the kubelet selects devices at random")
	set.TextVar(&f.Registration, "registration", deviceplugin.Auto,
		"method of registration with the kubelet: register (at kubelet.sock), watcher (the kubelet's plugin "+
			"watcher on the folder plugins_registry) or auto (watcher if the folder exists)")
	plainflag.Words(set, "registration", string(deviceplugin.Register), string(deviceplugin.Watcher),
		string(deviceplugin.Auto))
	f.registerIntent(set)
	f.registerPublishing(set)
	f.registerWatch(set)
}

// RegisterDriver adds the flags of the DRA driver to a set: all but those for the kubelet's device manager
// and for the sources of pod requests.
func (f *Flags) RegisterDriver(set *pflag.FlagSet) {
	f.registerPaths(set)
	f.registerLogging(set)
	f.registerPolicy(set)
	f.registerNodeName(set)
	f.registerWatch(set)
	set.BoolVar(&f.Events, "events", false,
		"write Events on pods with degraded or failed devices; requires permission to create events")
	plainflag.Choice(set, &f.probe, "probe", noProbe,
		"query /healthz or /readyz of the running daemon at --health-probe-bind-address and exit: 0 on success, "+
			"otherwise 1 with the reason; values: healthz, readyz", alive, ready, noProbe)
}

// registerIntent adds the flags for the sources of pod requests.
func (f *Flags) registerIntent(set *pflag.FlagSet) {
	set.TextVar(&f.Intent, "intent", intent.Default,
		"sources of pod requests; Tandem uses the best available source: pods-api (kubelet 1.37), kubelet (HTTPS "+
			"server; requires permission for nodes/pods), podresources, or none; without a source, Tandem infers the "+
			"container from call order and timing")
	plainflag.Words(set, "intent", string(intent.PodsAPI), string(intent.Kubelet),
		string(intent.PodResources), "none")
	f.registerPolicy(set)
	set.BoolVar(&f.Events, "events", false,
		"write Events on rejected pods, on pods with a pair that spans two switches, and on pods with degraded or "+
			"failed devices; requires permission to create events")
	set.TextVar(&f.Policy.Choose, "device-annotations", intent.Namespaces{},
		"namespaces whose pods may select devices with annotations ("+intent.DevicesKey+
			", and the annotations of HAMi, Volcano and Koordinator): all, none, or a comma-separated list")
	f.registerNodeName(set)
	set.StringVar(&f.Kubelet.Address, "kubelet-address", os.Getenv("NODE_IP"),
		"address of the kubelet's HTTPS server, HOST or HOST:PORT; the default host is $NODE_IP, the default "+
			"port 10250")
	set.StringVar(&f.Kubelet.Token, "kubelet-token-file", account+"token",
		"file with the token for the kubelet's HTTPS server; read before each request")
	set.StringVar(&f.Kubelet.CA, "kubelet-ca-file", account+"ca.crt",
		"file with the CA of the kubelet's serving certificate; the cluster's CA if the kubelet uses "+
			"serverTLSBootstrap")
	set.StringVar(&f.Kubelet.Certificate, "kubelet-cert-file", "",
		"file with the kubelet's self-signed serving certificate; trusted in addition to certificates "+
			"of --kubelet-ca-file (default "+ownCertificate+" in --kubelet-dir)")
}

// registerPolicy adds the flags for the required alignment.
func (f *Flags) registerPolicy(set *pflag.FlagSet) {
	set.TextVar(&f.Policy.Alignment, "alignment", intent.Preferred,
		"default alignment of containers: required rejects a container unless the GPU and the VF of each pair are "+
			"on one switch; preferred admits the container; the pod annotation "+
			intent.AlignmentKey+"=required takes precedence")
	set.TextVar(&f.Policy.OptOut, "alignment-opt-out", intent.Namespaces{},
		"namespaces whose pods may override --alignment=required with the annotation "+intent.AlignmentKey+
			"=preferred: all, none, or a comma-separated list")
	plainflag.Words(set, "alignment", string(intent.Required), string(intent.Preferred))
}

func (f *Flags) registerNodeName(set *pflag.FlagSet) {
	set.StringVar(&f.NodeName, "node-name", os.Getenv("NODE_NAME"),
		"name of the Node object (default $NODE_NAME)")
}

// registerWatch adds the flags for the health of devices, and for metrics and probes, and makes the monitor.
// The stock plugins have none; the names of the addresses are those of controller-runtime.
func (f *Flags) registerWatch(set *pflag.FlagSet) {
	f.monitor = newMonitor(version.Text())
	f.DeviceHealth = health.Default()
	set.Var(&f.DeviceHealth, "device-health",
		"health of PFs and GPUs by their ports, PCIe links and counters: on, off, or some of port, link and "+
			"counters, with commas between; a degraded device is chosen last, a failed one is unhealthy; "+
			"limits: docs/health.md")
	plainflag.Words(set, "device-health", append([]string{health.On, health.Off}, health.Causes...)...)
	set.TextVar(&f.Metrics, "metrics-bind-address", address(""),
		"address to serve Prometheus metrics at /metrics, HOST:PORT or :PORT; empty to disable")
	set.TextVar(&f.Health, "health-probe-bind-address", address(""),
		"address to serve the probes /healthz (no goroutine hangs) and /readyz (all resources are registered with "+
			"the kubelet), HOST:PORT, :PORT or unix:PATH; may equal --metrics-bind-address; empty to disable")
}

func (f *Flags) registerPublishing(set *pflag.FlagSet) {
	set.TextVar(&f.targets, "publish", publish.Targets{},
		"comma-separated publications of the node for schedulers, written by the daemon that serves the "+
			"coordination socket: tandem (NodeTopology object), nrt (NodeResourceTopology object), nfd "+
			"(labels through a NodeFeature object), kubenexus (additional labels); empty for none")
	set.StringVar(&f.config.Config, "kubelet-config", "",
		"kubelet configuration file, for the policy of the Topology Manager, and for --publish if the kubelet "+
			"does not answer at --kubelet-address (default "+kubelet.ConfigFile+" in --kubelet-dir)")
	set.StringVar(&f.config.Dir, "kubelet-config-dir", "",
		"folder of the kubelet's configuration drop-ins (--config-dir); without the folder, a policy other than "+
			"restricted in --kubelet-config counts as unknown for the choice of devices")
	plainflag.Words(set, "publish", publish.All...)
}
