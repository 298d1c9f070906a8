// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"path/filepath"

	"github.com/tandem-k8s/tandem/cmd/internal/monitor"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/configuration"
	"github.com/tandem-k8s/tandem/coordination/publish"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
	"github.com/tandem-k8s/tandem/plugins/health"
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
	targets  publish.Targets
	config   configuration.Files
	features string
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
func (f Flags) files() configuration.Files {
	files := f.publishing.config
	if files.Config == "" {
		files.Config, files.Guessed = filepath.Join(f.KubeletDir, configuration.FileName), true
	}
	return files
}
