// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"io/fs"
	"os"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/configuration"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/topology"
)

// newCoordinator returns a coordinator for a node, with reads of this machine and of the node's kubelet.
func newCoordinator(
	c *Config, machine *machine, sources *intent.Sources, pods PodResources,
) (*admission.Coordinator, error) {
	config := admission.Config{
		RunDir:    c.RunDir,
		Disk:      c.Disk,
		Refresh:   machine.refresh,
		Newest:    machine.newest,
		Get:       pods.Get,
		Life:      pods.Life,
		Recorded:  system.BoundRead(c.Log, system.FileLimit, kubelet.NewCheckpointReader(c.KubeletDir).Read),
		Granted:   func() ([]kubelet.Granted, error) { return kubelet.ReadGranted(c.KubeletDir) },
		Pods:      sources.Pods,
		Alignment: c.Intent.Policy.Alignment,
		Manager:   newManagerReader(c, machine.newest),
		Log:       c.Log,
		Observer:  c.Observer,
	}
	if slices.Contains(c.Intent.Sources, intent.PodResources) {
		config.Look, config.AllocatableCPUs = pods.List, pods.AllocatableCPUs
		config.NodeCPUs = func() map[int]topology.CPUSet { return topology.CPUs(os.DirFS(c.SysRoot)) }
	}
	return admission.New(config)
}

// newManagerReader returns a function for the node's Topology Manager.
func newManagerReader(c *Config, tree func() *topology.Tree) func() (devicemanager.Kubelet, error) {
	return system.BoundRead(c.Log, system.FileLimit, func() (devicemanager.Kubelet, error) {
		return readManager(c.Kubelet, os.DirFS(c.SysRoot), tree())
	})
}

// readManager returns the Topology Manager by files of the kubelet's configuration.
func readManager(
	files configuration.Files, sys fs.FS, tree *topology.Tree,
) (m devicemanager.Kubelet, err error) {
	kubelet, err := readKubelet(files)
	if err != nil {
		return m, err
	}
	return kubelet.TopologyManager(model.ReadNUMANodes(sys, tree.NUMANodes()))
}

// readKubelet reads the kubelet's settings. A policy is empty, for unknown, if no file names it: a flag of
// the kubelet may set the policy. So is, without a folder of drop-ins, a policy other than the strictest, because
// a drop-in elsewhere may override the file: tandem doctor --drop-in prints such a one.
func readKubelet(files configuration.Files) (model.Kubelet, error) {
	settings, err := configuration.Read(files, nil)
	if err != nil {
		return model.Kubelet{}, err
	}
	for _, s := range []struct {
		key, strict string
		value       *string
	}{
		{"topologyManagerPolicy", string(hints.Restricted), &settings.Policy},
		{"cpuManagerPolicy", "static", &settings.CPUPolicy},
		{"memoryManagerPolicy", "Static", &settings.MemoryPolicy},
	} {
		if settings.Origin(s.key) == "" || files.Dir == "" && *s.value != s.strict {
			*s.value = ""
		}
	}
	return model.NewKubelet(settings)
}
