// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"os"
	"slices"

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
		Disk:      c.Disk,
		Boot:      c.Boot,
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
	if slices.Contains(c.Intent.Sources, intent.PodResources) {
		config.Look, config.AllocatableCPUs = pods.List, pods.AllocatableCPUs
		config.NodeCPUs = func() map[int]topology.CPUSet { return topology.CPUs(os.DirFS(c.SysRoot)) }
	}
	return admission.New(config)
}

// newPolicyReader returns a function for the policy of the node's Topology Manager by the kubelet's
// configuration, "" if unknown.
func newPolicyReader(c *Config) func() hints.Policy {
	read := bounded.Read(c.Log, bounded.File, func() (hints.Policy, error) { return readPolicy(c.Kubelet) })
	return func() hints.Policy {
		policy, err := read()
		if err != nil {
			return ""
		}
		return policy
	}
}

// readPolicy returns the policy in files, "" if not set there: a flag of the kubelet may set the policy.
// Without a folder of drop-ins a policy other than restricted counts as unknown, because a drop-in elsewhere
// may override the file: tandem doctor --drop-in prints such a one.
func readPolicy(files configuration.Files) (hints.Policy, error) {
	settings, err := configuration.Read(files, nil)
	if err != nil || settings.Origin("topologyManagerPolicy") == "" {
		return "", err
	}
	policy, err := hints.ParsePolicy(settings.Policy)
	if files.Dir == "" && policy != hints.Restricted {
		return "", err
	}
	return policy, err
}
