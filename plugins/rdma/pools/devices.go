// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/plugins/rdma/sysfs"
	"github.com/tandem-k8s/tandem/topology"
)

// claim takes the devices that the resource selects and nobody has claimed, selector by selector.
func (r *ResourceConfig) claim(candidates []*function, claimed map[string]bool) []Device {
	var devices []Device
	for i := range r.Selectors {
		for _, f := range candidates {
			if !claimed[f.id()] && r.offers(f) && r.Selectors[i].selects(f) {
				claimed[f.id()] = true
				devices = append(devices, r.device(f, &r.Selectors[i]))
			}
		}
	}
	slices.SortFunc(devices, Device.Compare)
	return devices
}

// MaxReplicas is how many devices a pool of shared HCAs has at the most: as many as placement is quick with,
// and half of what coordination holds of a resource.
const MaxReplicas = 1 << 13

// share offers every HCA that the resource selects as so many devices as it says. An HCA may be in several
// resources: shared are those of the resources before.
func (r *ResourceConfig) share(
	candidates []*function, shared map[topology.Address]bool,
) (devices []Device, warnings []string) {
	var hcas []Device
	for _, f := range candidates {
		if r.offers(f) && r.Selectors[0].selects(f) {
			hcas = append(hcas, r.hca(f, shared))
		}
	}
	slices.SortFunc(hcas, Device.Compare)
	replicas := min(r.Replicas, MaxReplicas/max(len(hcas), 1))
	if replicas < r.Replicas {
		const fewer = "resource %q: rdmaHcaMax: a resource has %d devices at most: " +
			"each of its %d HCAs is offered %d times"
		warnings = append(warnings, fmt.Sprintf(fewer, r.Name, MaxReplicas, len(hcas), replicas))
	}
	for _, d := range hcas {
		for n := range replicas {
			d.ID = replicaID(d.Address, r.firstReplica+n)
			devices = append(devices, d)
		}
	}
	return devices, warnings
}

// hca is what all replicas of an HCA have in common. Nothing of it is hidden by containers: what they share
// stays on the node.
func (r *ResourceConfig) hca(f *function, shared map[topology.Address]bool) Device {
	d := r.device(f, &r.Selectors[0])
	d.HCA, d.Visible = d.ID, nil
	if shared[f.Address] {
		d.HCA += "." + r.Name
	}
	shared[f.Address] = true
	return d
}

func (r *ResourceConfig) device(f *function, s *Selector) Device {
	d := Device{
		ID: f.id(), Address: f.Address, PF: f.PF, NUMA: f.NUMA, Aux: f.aux,
		Fault: r.fault(f), Selector: s, Visible: f.visible(),
	}
	if r.ExcludeTopology {
		d.NUMA = topology.NUMANode{}
	}
	return d
}

// acceleratorClass is the PCI class of processing accelerators.
const acceleratorClass = 0x12

// offers reports whether a device is of the resource's type. The classes are those of SupportedDevices in
// pkg/types/types.go of the stock plugin.
func (r *ResourceConfig) offers(f *function) bool {
	switch r.DeviceType {
	case NetDevice:
		return f.aux == "" && f.Class.IsNetwork() && !f.inUse
	case AuxNetDevice:
		return f.aux != ""
	case Accelerator:
		return f.aux == "" && f.Class>>16 == acceleratorClass
	case SharedHCA: // the node and its VFs may use it too
		return f.aux == "" && f.Class.IsNetwork() && len(f.RDMA) > 0
	default:
		return false
	}
}

// fault is why a device is unhealthy, "" where it is healthy. What cannot be read is not held against it.
func (r *ResourceConfig) fault(f *function) string {
	switch {
	case r.DeviceType == SharedHCA && len(sysfs.Names(f.machine.sys, f.file("infiniband_verbs"))) == 0:
		return "no uverbs device: load the kernel module ib_uverbs"
	case r.CheckPF && noCarrier(f):
		return "no carrier on the PF"
	case r.CheckExporter && f.machine.ill(f.id()):
		return "unhealthy for the metrics exporter"
	case r.CheckPort && portDown(f):
		return "the RDMA port is not active"
	default:
		return ""
	}
}

// noCarrier reads carrier of the PF's netdev, of a function without a PF that of its own. Reading it fails
// while the netdev is down (Documentation/ABI/testing/ sysfs-class-net): there is no carrier then either.
func noCarrier(f *function) bool {
	netdev := f.file("net", f.netdev())
	if name := f.pfName(); name != "" {
		netdev = f.pfNetdev(name, "")
	} else if _, has := f.parent(); has || f.netdev() == "" {
		return false
	}
	says := func(file string) string { return sysfs.Text(f.machine.sys, netdev+"/"+file) }
	return says("carrier") == "0" || says("operstate") == "down"
}

// portDown reads the state of port 1, "4: ACTIVE" (Documentation/ABI/stable/sysfs-class-infiniband): of the
// device's own RDMA device or, where a container hides that, of its PF's.
func portDown(f *function) bool {
	own := f.rdma()
	dir := f.file("infiniband")
	if len(own) == 0 {
		parent, _ := f.parent()
		d, ok := f.machine.tree.Device(parent)
		if !ok || len(d.RDMA) == 0 {
			return false
		}
		own, dir = d.RDMA, sysfs.File(parent, "", "infiniband")
	}
	state := sysfs.Text(f.machine.sys, dir+"/"+own[0]+"/ports/1/state")
	return state != "" && !strings.HasSuffix(state, ": ACTIVE")
}
