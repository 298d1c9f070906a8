// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"io/fs"

	"github.com/tandem-k8s/tandem/plugins/rdma/sysfs"
	"github.com/tandem-k8s/tandem/topology"
)

// machine reads values for selectors that the tree lacks, and caches shared ones.
type machine struct {
	sys     fs.FS
	dev     fs.FS // the host's device nodes; nil if not to be seen
	sriov   sysfs.SRIOV
	tree    *topology.Tree
	ddp     func(function, pf topology.Address) string
	known   map[string]Hidden // properties of devices by ID, from before containers hid them
	told    map[string]bool   // the metrics exporter's health of devices by ID
	pfNames map[topology.Address]string
	indexes map[topology.Address]map[string]int
	vdpa    map[topology.Address]sysfs.VDPADevice // nil until somebody asks
}

// pfName returns the netdev of a PF; in switchdev mode, with several netdevs including the VFs' representors,
// the uplink representor.
func (m *machine) pfName(pf topology.Address) string {
	name, ok := m.pfNames[pf]
	if ok {
		return name
	}
	if ports := m.ports(pf); len(ports) > 0 {
		name = ports[0]
	}
	m.pfNames[pf] = name
	return name
}

// ports returns the netdevs of a PF's ports; in switchdev mode, with a netdev for each VF, the uplink
// representor alone.
func (m *machine) ports(pf topology.Address) []string {
	if uplink := m.sriov.Uplink(pf); uplink != "" {
		return []string{uplink}
	}
	d, _ := m.tree.Device(pf)
	if d == nil {
		return nil
	}
	return d.Netdevs
}

// vfIndex returns the index of a VF within its PF, -1 for none. The position in the tree's list of VFs is not
// sufficient, because a missing link would shift the rest.
func (m *machine) vfIndex(pf, vf topology.Address) int {
	indexes, ok := m.indexes[pf]
	if !ok {
		indexes = sysfs.Indexes(m.sys, pf)
		m.indexes[pf] = indexes
	}
	if index, ok := indexes[vf.String()]; ok {
		return index
	}
	return -1
}

// hasVFs reads sriov_numvfs, like the stock plugin; a PF with links to VFs has VFs even if that file is
// absent.
func (m *machine) hasVFs(d *topology.Device) bool {
	numvfs := sysfs.Text(m.sys, sysfs.File(d.Address, "", "sriov_numvfs"))
	return len(d.VFs) > 0 || (numvfs != "" && numvfs != "0")
}

// ill reports whether the metrics exporter monitors a device and reports it as unhealthy.
func (m *machine) ill(id string) bool {
	healthy, known := m.told[id]
	return known && !healthy
}

// vdpaType returns the vdpaType of a function's vDPA device, "" for none.
func (m *machine) vdpaType(a topology.Address) string {
	if m.vdpa == nil {
		m.vdpa = sysfs.VDPADevices(m.sys)
	}
	return m.vdpa[a].Kind
}

// Hidden are the properties that a container's namespaces hide: always netdevs, in exclusive mode RDMA
// devices too. Without them selectors would no longer select a device in a container.
type Hidden struct {
	Driver   string `json:"driver"` // with another driver it is another device
	LinkType string `json:"linkType,omitempty"`
	PKey     string `json:"pKey,omitempty"`
	RDMA     bool   `json:"rdma,omitempty"`
}
