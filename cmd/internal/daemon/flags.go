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
		"tell the kubelet which devices to prefer; false leaves it to choose at random")
	set.TextVar(&f.Registration, "registration", deviceplugin.Auto,
		"how the kubelet gets to know the plugin: register (at kubelet.sock), watcher (found in plugins_registry) "+
			"or auto (watcher where that folder exists)")
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
		"ask the daemon that serves at --health-probe-bind-address for healthz or readyz, and end: 0 where all is "+
			"well, else 1 and what is not")
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
