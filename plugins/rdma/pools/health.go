package pools

import (
	"strings"

	"github.com/tandem-k8s/tandem/plugins/rdma/sysfs"
)

// fault is why a device is unhealthy, "" where it is healthy. What cannot be read is not held against it.
func (r *ResourceConfig) fault(f *function) string {
	switch {
	case r.CheckPF && f.noCarrier():
		return "no carrier on the PF"
	case r.CheckPort && f.portDown():
		return "the RDMA port is not active"
	default:
		return ""
	}
}

// noCarrier reads carrier of the PF's netdev. Reading it fails while the netdev is down
// (Documentation/ABI/testing/ sysfs-class-net): there is no carrier then either.
func (f *function) noCarrier() bool {
	name := f.pfName()
	if name == "" {
		return false
	}
	says := func(file string) string { return sysfs.Text(f.machine.sys, f.pfNetdev(name, file)) }
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
