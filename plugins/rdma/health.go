package rdma

import (
	"slices"
	"strings"
)

// Health says which signs of a device's health count beyond its being there. All are opt-in: a VF passes traffic to other VFs
// of its PF while the PF has no carrier, and the stock plugin looks at none of them. The first two keys are those of its
// pull request 640.
type Health struct {
	CheckPF     bool `json:"checkHealthOnPf"`          // unhealthy while the PF's netdev has no carrier
	CheckDevice bool `json:"checkHealthOnDeviceExist"` // accepted; a device that is gone is unhealthy in any case
	CheckPort   bool `json:"checkHealthOnRdmaPort"`    // unhealthy while port 1 of the RDMA device is not active
}

// checks reports whether any resource wants a check.
func (c *Config) checks(wanted func(Health) bool) bool {
	return slices.ContainsFunc(c.Resources, func(r ResourceConfig) bool { return wanted(r.Health) })
}

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

// noCarrier reads carrier of the PF's netdev. Reading it fails while the netdev is down (Documentation/ABI/testing/
// sysfs-class-net): there is no carrier then either.
func (f *function) noCarrier() bool {
	name := f.pfName()
	if name == "" {
		return false
	}
	netdev := inFunction(f.pfAddress(), "net", name)
	return readText(f.machine.sys, netdev+"/carrier") == "0" || readText(f.machine.sys, netdev+"/operstate") == "down"
}

// portDown reads the state of port 1, "4: ACTIVE" (Documentation/ABI/stable/sysfs-class-infiniband): of the device's own
// RDMA device or, where a container hides that, of its PF's.
func (f *function) portDown() bool {
	own := f.rdma()
	dir := f.file("infiniband")
	if len(own) == 0 {
		parent, _ := f.parent()
		d, ok := f.machine.tree.Device(parent)
		if !ok || len(d.RDMA) == 0 {
			return false
		}
		own, dir = d.RDMA, inFunction(parent.String(), "infiniband")
	}
	state := readText(f.machine.sys, dir+"/"+own[0]+"/ports/1/state")
	return state != "" && !strings.HasSuffix(state, ": ACTIVE")
}
