// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/internal/events"
	"github.com/tandem-k8s/tandem/cmd/internal/monitor"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
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

	publishing publishing

	probe   monitor.Probe
	monitor *monitor.Monitor // nil until the daemon runs
	sender  *events.Sender   // nil without events
}

// account is the folder in which Kubernetes mounts the token of a pod's service account and the cluster's CA.
const account = "/var/run/secrets/kubernetes.io/serviceaccount/"

// ownCertificate is the self-signed certificate of a kubelet, below its folder.
const ownCertificate = "pki/kubelet.crt"

// Register adds the flags of a device plugin to a set.
func (f *Flags) Register(set *pflag.FlagSet) {
	f.Paths.register(set)
	f.Logging.register(set)
	set.BoolVar(&f.PreferredAllocation, "preferred-allocation", true,
		"answer GetPreferredAllocation; if false, the kubelet selects devices at random")
	set.TextVar(&f.Registration, "registration", deviceplugin.Auto,
		"method of registration with the kubelet: register (at kubelet.sock), watcher (the kubelet's plugin "+
			"watcher on the folder plugins_registry) or auto (watcher if the folder exists)")
	f.registerIntent(set)
	f.publishing.register(set)
	f.registerWatch(set)
}

// RegisterDriver adds the flags of the DRA driver to a set: all but those for the kubelet's device manager
// and for the sources of pod requests.
func (f *Flags) RegisterDriver(set *pflag.FlagSet) {
	f.Paths.register(set)
	f.Logging.register(set)
	f.registerPolicy(set)
	f.registerNodeName(set)
	f.registerWatch(set)
	set.TextVar(&f.probe, "probe", monitor.NoProbe,
		"query /healthz or /readyz of the running daemon at --health-probe-bind-address and exit: 0 on success, "+
			"otherwise 1 with the reason; values: healthz, readyz")
}

// registerIntent adds the flags for the sources of pod requests.
func (f *Flags) registerIntent(set *pflag.FlagSet) {
	set.TextVar(&f.Intent, "intent", intent.Default,
		"sources of pod requests; Tandem uses the best available source: pods-api (kubelet 1.37), kubelet (HTTPS "+
			"server; requires permission for nodes/pods), api-server (requires permission to list and watch pods), "+
			"podresources, or none; without a source, Tandem infers the container from call order and timing")
	f.registerPolicy(set)
	set.BoolVar(&f.Events, "events", false,
		"write Events on rejected pods, and on pods with a pair that spans two switches; requires permission to "+
			"create events; always enabled with --intent=api-server")
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
}

func (f *Flags) registerNodeName(set *pflag.FlagSet) {
	set.StringVar(&f.NodeName, "node-name", os.Getenv("NODE_NAME"),
		"name of the Node object (default $NODE_NAME)")
}
