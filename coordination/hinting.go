// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"os"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/coordination/resources"
	"github.com/tandem-k8s/tandem/topology"
)

// Hinting returns what decides about the NUMA hints of VFs, without the pools: the kubelet's settings, as far
// as known, and the GPUs as announced on this node since its boot, none before; and the PCI tree.
func (n *Node) Hinting() (h model.Hinting, tree *topology.Tree) {
	tree = n.machine.newest()
	h = model.Hinting{Nodes: tree.NUMANodes(), CPUs: model.HintedNodes(os.DirFS(n.config.SysRoot), tree)}
	if settings, err := readKubelet(n.config.Kubelet); err == nil {
		h.Kubelet = settings
	}
	for _, r := range n.announcedGPUs() {
		one := model.Resource{Name: r.Name, Kind: devicemanager.GPU}
		for _, d := range r.Ordered() {
			one.Devices = append(one.Devices, model.Device{NUMA: d.NUMA, Healthy: d.Healthy})
		}
		if len(one.Devices) > 0 {
			h.GPUs = append(h.GPUs, one)
		}
	}
	return h, tree
}

// announcedGPUs returns the announced resources of GPUs: those of the coordinator, by its file while another
// plugin serves.
func (n *Node) announcedGPUs() []*resources.Resource {
	set := resources.Set{}
	if own := n.election.serving.Load(); own != nil {
		announced, _ := own.coordinator.Announced()
		for _, r := range announced.Resources {
			set[r.Name] = r
		}
	} else if saved, err := admission.Saved(n.config.RunDir, n.config.Disk.Boot); err == nil {
		set = saved
	}
	return set.OfKind(device.GPU)
}
