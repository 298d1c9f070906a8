package pools

import (
	"strings"

	"github.com/tandem-k8s/tandem/plugins/rdma/sysfs"
)

// fault is why a device is unhealthy, "" where it is healthy. What cannot be read is not held against it.
func (r *ResourceConfig) fault(f *function) string {
	switch {
	case r.DeviceType == SharedHCA && len(sysfs.Names(f.machine.sys, f.file("infiniband_verbs"))) == 0:
		return "no uverbs device: load the kernel module ib_uverbs"
	case r.CheckPF && f.noCarrier():
		return "no carrier on the PF"
	case r.CheckExporter && f.machine.ill(f.id()):
		return "unhealthy for the metrics exporter"
	case r.CheckPort && f.portDown():
		return "the RDMA port is not active"
	default:
		return ""
	}
}

// noCarrier reads carrier of the PF's netdev, of a function without a PF that of its own. Reading it fails
// while the netdev is down (Documentation/ABI/testing/ sysfs-class-net): there is no carrier then either.
func (f *function) noCarrier() bool {
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
func (f *function) portDown() bool {
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
