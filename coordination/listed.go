// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"errors"
	"io/fs"
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
)

// Needed are the devices of a resource that the kubelet may look up, by its checkpoint: those that it counts
// as healthy, and those that containers hold. From 1.34 on its process ends when one of them is no longer
// listed (allDevices is looked up without a check, pkg/kubelet/cm/devicemanager/manager.go).
func (n *Node) Needed(resource string) (map[string]bool, error) {
	recorded, err := kubelet.ReadCheckpoint(n.config.KubeletDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	needed := map[string]bool{}
	for id := range recorded.Listed(resource) {
		needed[id] = true
	}
	return needed, nil
}

// Listed is every device of a resource that the kubelet needs from this plugin's earlier life (see Needed). A
// plugin that no longer finds one keeps it in its list, unhealthy. None of them is known to be healthy. Where
// the kubelet's checkpoint cannot be read they are all that an earlier server has written down.
func (n *Node) Listed(resource string) []device.Device {
	known := map[string]device.Device{}
	recorded, err := kubelet.ReadCheckpoint(n.config.KubeletDir)
	for id, node := range recorded.Listed(resource) {
		d := device.Device{ID: id}
		if node >= 0 {
			d.NUMA = topology.Node(node)
		}
		known[id] = d
	}
	unreadable := err != nil && !errors.Is(err, fs.ErrNotExist)
	for _, d := range admission.Saved(n.config.RunDir, resource) {
		if _, listed := known[d.ID]; listed || unreadable {
			known[d.ID] = d
		}
	}
	return slices.SortedFunc(maps.Values(known), device.Compare)
}
