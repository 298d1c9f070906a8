// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/internal/events"
	"github.com/tandem-k8s/tandem/cmd/internal/monitor"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
)

// Flags are the flags of all daemons. The four folders default to those of a live node; tests and tools set
// them to a recorded machine and to a kubelet's folder elsewhere.
type Flags struct {
	SysfsRoot           string
	DevRoot             string
	KubeletDir          string
	RunDir              string
	TopologyFile        string
	LogFormat           LogFormat
	LogLevel            slog.Level
	PreferredAllocation bool
	Registration        deviceplugin.Registration
	Intent              intent.Choice
	Policy              intent.Policy
	Kubelet             kubelet.Endpoint
	NodeName            string
	Events              bool
	Metrics             monitor.Address
	Health              monitor.Address

	publishing publishing

	probe   monitor.Probe
	glog    glogFlags
	monitor *monitor.Monitor // nil until the daemon runs
	sender  *events.Sender   // nil without events
}

// account is the folder in which Kubernetes mounts the token of a pod's service account and the cluster's CA.
const account = "/var/run/secrets/kubernetes.io/serviceaccount/"

// ownCertificate is the self-signed certificate of a kubelet, below its folder.
const ownCertificate = "pki/kubelet.crt"

// Register adds the flags of a device plugin to a set.
func (f *Flags) Register(set *pflag.FlagSet) {
	f.registerPlaces(set)
	set.BoolVar(&f.PreferredAllocation, "preferred-allocation", true,
		"tell the kubelet which devices to prefer; false leaves it to choose at random")
	set.TextVar(&f.Registration, "registration", deviceplugin.Auto,
		"how the kubelet gets to know the plugin: register (at kubelet.sock), watcher (found in plugins_registry) "+
			"or auto (watcher where that folder exists)")
	f.glog.register(set)
	f.registerIntent(set)
	f.publishing.register(set)
	f.registerWatch(set)
}

// RegisterDriver adds the flags of the DRA driver to a set: all but those for the kubelet's device manager
// and for the sources of pod requests.
func (f *Flags) RegisterDriver(set *pflag.FlagSet) {
	f.registerPlaces(set)
	f.glog.register(set)
	f.registerPolicy(set)
	f.registerNodeName(set)
	f.registerWatch(set)
	set.TextVar(&f.probe, "probe", monitor.NoProbe,
		"ask the daemon that serves at --health-probe-bind-address for healthz or readyz, and end: 0 where all is "+
			"well, else 1 and what is not")
}

// registerPlaces adds the flags for paths and for logging.
func (f *Flags) registerPlaces(set *pflag.FlagSet) {
	set.StringVar(&f.SysfsRoot, "sysfs-root", "/sys", "folder to read the machine from")
	set.StringVar(&f.DevRoot, "dev-root", "/dev", "folder with the device nodes")
	set.StringVar(&f.KubeletDir, "kubelet-dir", kubelet.DefaultDir, "the kubelet's root folder")
	set.StringVar(&f.RunDir, "run-dir", "",
		"folder of the coordination socket, shared by both daemons "+
			"(default device-plugins/tandem in --kubelet-dir, which the pods of both mount, whoever deploys them)")
	set.StringVar(&f.TopologyFile, "topology-file", "",
		"topology file of NCCL (NCCL_TOPO_FILE) that says which devices share a switch, "+
			"on a machine whose sysfs does not: a guest with a flat PCI tree")
	set.TextVar(&f.LogFormat, "log-format", Text, "text or json")
	set.TextVar(&f.LogLevel, "log-level", slog.LevelInfo, "debug, info, warn or error")
}

// registerIntent adds the flags for the sources of pod requests.
func (f *Flags) registerIntent(set *pflag.FlagSet) {
	set.TextVar(&f.Intent, "intent", intent.Default,
		"what may be asked what a container wants, the best that answers is used: pods-api (kubelet 1.37), "+
			"kubelet (its HTTPS server; needs the right nodes/pods), api-server (needs the right to list and watch "+
			"pods), podresources; none of them leaves order and time")
	f.registerPolicy(set)
	set.BoolVar(&f.Events, "events", false,
		"write Events on pods whose pairs are not all on one switch, or that were refused; takes the right to "+
			"create events, and is on with --intent=api-server")
	set.TextVar(&f.Policy.Choose, "device-annotations", intent.Namespaces{},
		"whose pods may say in annotations which devices they want ("+intent.DevicesKey+
			", and what HAMi, Volcano and Koordinator write): all, none, or namespaces with commas between")
	f.registerNodeName(set)
	set.StringVar(&f.Kubelet.Address, "kubelet-address", os.Getenv("NODE_IP"),
		"where the kubelet's HTTPS server listens, by default port 10250 of $NODE_IP")
	set.StringVar(&f.Kubelet.Token, "kubelet-token-file", account+"token",
		"file with the token for the kubelet's HTTPS server, read for every question")
	set.StringVar(&f.Kubelet.CA, "kubelet-ca-file", account+"ca.crt",
		"file with the CA of the kubelet's certificate: the cluster's where the kubelet has serverTLSBootstrap")
	set.StringVar(&f.Kubelet.Certificate, "kubelet-cert-file", "",
		"file with the certificate of a kubelet that signs its own: the kubelet is trusted that presents this one "+
			"(default "+ownCertificate+" in --kubelet-dir)")
}

// registerPolicy adds the flags for the required alignment.
func (f *Flags) registerPolicy(set *pflag.FlagSet) {
	set.TextVar(&f.Policy.Alignment, "alignment", intent.Preferred,
		"required refuses a container whose pairs are not all on one switch each; preferred starts it; "+
			"a pod's annotation "+
			intent.AlignmentKey+": required stands above it")
	set.TextVar(&f.Policy.OptOut, "alignment-opt-out", intent.Namespaces{},
		"whose pods may lift --alignment=required with the annotation "+intent.AlignmentKey+
			": preferred: all, none, or namespaces with commas between")
}

func (f *Flags) registerNodeName(set *pflag.FlagSet) {
	set.StringVar(&f.NodeName, "node-name", os.Getenv("NODE_NAME"),
		"the node's name in Kubernetes, by default $NODE_NAME")
}

// LogFormat is how log lines are written.
type LogFormat string

// The two formats.
const (
	Text LogFormat = "text"
	JSON LogFormat = "json"
)

// MarshalText returns the format as the flag spells the format.
func (f LogFormat) MarshalText() ([]byte, error) { return []byte(f), nil }

// UnmarshalText accepts "text" and "json".
func (f *LogFormat) UnmarshalText(text []byte) error {
	switch format := LogFormat(text); format {
	case Text, JSON:
		*f = format
		return nil
	default:
		return fmt.Errorf("want %s or %s", Text, JSON)
	}
}

// Logger returns the daemon's logger: one line per decision, in the format and from the level of the flags.
func Logger(f Flags, w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: f.LogLevel, ReplaceAttr: onlyErrors}
	if f.LogFormat == JSON {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// onlyErrors omits an attribute "error" without an error, which would print as "error=<nil>".
func onlyErrors(_ []string, a slog.Attr) slog.Attr {
	if a.Key == "error" && a.Value.Any() == nil {
		return slog.Attr{}
	}
	return a
}
