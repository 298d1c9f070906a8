// SPDX-License-Identifier: Apache-2.0

// Package offer models a machine as the plugins offer it to the kubelet: devices, and the coordinator's view
// of them at a container's request.
package offer

import (
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Device is a GPU or VF as announced to the kubelet.
type Device struct {
	placement.Device
	NUMA     topology.NUMANode // unknown also for a pool with excludeTopology
	Used     bool              // by a container
	Resource string            // of a VF: the name of its pool; "" if unknown
}

// New returns a free device.
func New(id string, address topology.Address, numa topology.NUMANode) Device {
	return Device{Device: placement.Device{ID: id, Address: address}, NUMA: numa}
}

// View returns the coordinator's view of a machine's devices. All GPUs are of one resource, and all VFs.
func View(links []topology.Link, gpus, vfs []Device) *devicemanager.View {
	var used []string
	announced := make([]devicemanager.Announcement, len(devicemanager.Kinds))
	for kind, list := range [...][]Device{gpus, vfs} {
		announced[kind].Kind = devicemanager.Kind(kind)
		for _, d := range list {
			told := devicemanager.Device{Device: d.Device, NUMA: d.NUMA}
			announced[kind].Devices = append(announced[kind].Devices, told)
			if d.Used {
				used = append(used, d.ID)
			}
		}
	}
	node := devicemanager.New(announced)
	v := &devicemanager.View{Node: node, Links: links, Taken: node.Select(used)}
	v.Free = node.OfKind[devicemanager.GPU].Clone()
	v.Free.Include(node.OfKind[devicemanager.VF])
	v.Free.Exclude(v.Taken)
	return v
}

// Requests returns the requests of a container.
func Requests(gpus, vfs int) devicemanager.Requests {
	return devicemanager.Requests{
		{Resource: int(devicemanager.GPU), Count: gpus}, {Resource: int(devicemanager.VF), Count: vfs},
	}
}
