// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/bounded"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/configuration"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/topology"
)

// newCoordinator returns a coordinator for a node, with reads of this machine and of the node's kubelet.
func newCoordinator(
	c *Config, machine *machine, sources *intent.Sources, pods PodResources,
) (*admission.Coordinator, error) {
	config := admission.Config{
		RunDir:    c.RunDir,
		Refresh:   machine.refresh,
		Newest:    machine.newest,
		Get:       pods.Get,
		Recorded:  bounded.Read(c.Log, bounded.File, kubelet.NewCheckpointReader(c.KubeletDir).Read),
		Granted:   func() ([]kubelet.Granted, error) { return kubelet.ReadGranted(c.KubeletDir) },
		Pods:      sources.Pods,
		Alignment: c.Intent.Policy.Alignment,
		Policy:    newPolicyReader(c),
		Log:       c.Log,
		Observer:  c.Observer,
	}
	if c.Intent.Sources.Has(intent.PodResources) {
		config.Look, config.AllocatableCPUs = pods.List, pods.AllocatableCPUs
		config.NodeCPUs = func() map[int]topology.CPUSet { return topology.CPUs(os.DirFS(c.SysRoot)) }
	}
	return admission.New(config)
}

// newPolicyReader returns a function for the policy of the node's Topology Manager, by the configuration in
// the kubelet's directory; "" if unreadable or not set there, since the policy may be in a drop-in or a flag.
func newPolicyReader(c *Config) func() hints.Policy {
	read := bounded.Read(c.Log, bounded.File, func() (hints.Policy, error) {
		return readPolicy(filepath.Join(c.KubeletDir, configuration.FileName))
	})
	return func() hints.Policy {
		policy, err := read()
		if err != nil {
			return ""
		}
		return policy
	}
}

// maxConfiguration is the maximum size of the kubelet's configuration, in bytes.
const maxConfiguration = 1 << 20

// readPolicy returns the policy in a file, "" if not set.
func readPolicy(name string) (hints.Policy, error) {
	info, err := os.Stat(name)
	if err != nil {
		return "", err
	}
	if info.Size() > maxConfiguration {
		return "", fmt.Errorf("read %s: it has %d bytes, more than %d", name, info.Size(), maxConfiguration)
	}
	content, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	var file struct {
		Policy string `json:"topologyManagerPolicy"`
	}
	if _, err := configuration.Decode(content, &file); err != nil || file.Policy == "" {
		return "", err
	}
	return hints.ParsePolicy(file.Policy)
}
