// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"cmp"
	"io/fs"

	"github.com/tandem-k8s/tandem/plugins/rdma/sysfs"
	"github.com/tandem-k8s/tandem/topology"
)

// machine reads what selectors ask and the tree does not hold, what many functions ask once.
type machine struct {
	sys     fs.FS
	sriov   sysfs.SRIOV
	tree    *topology.Tree
	ddp     func(function, pf topology.Address) string
	known   map[string]Hidden // what was seen of devices by ID, before containers hid it
	told    map[string]bool   // the health of devices by ID, as the metrics exporter tells it
	pfNames map[topology.Address]string
	indexes map[topology.Address]map[string]int
	vdpa    map[topology.Address]sysfs.VDPADevice // nil until somebody asks
}

// pfName is the netdev of a PF. In switchdev mode a PF has several, its VFs' representors among them; then it
// is the uplink representor.
func (m *machine) pfName(pf topology.Address) string {
	name, ok := m.pfNames[pf]
	if ok {
		return name
	}
	if d, ok := m.tree.Device(pf); ok && len(d.Netdevs) > 0 {
		name = cmp.Or(m.sriov.Uplink(pf), d.Netdevs[0])
	}
	m.pfNames[pf] = name
	return name
}

// vfIndex is the number of a VF within its PF; -1 where it has none. The position in the tree's list of VFs
// is not enough: where a link is missing the rest would shift.
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

// hasVFs reads sriov_numvfs, as the stock plugin does; a PF with links to VFs has some even where that file
// is absent.
func (m *machine) hasVFs(d *topology.Device) bool {
	numvfs := sysfs.Text(m.sys, sysfs.File(d.Address, "", "sriov_numvfs"))
	return len(d.VFs) > 0 || (numvfs != "" && numvfs != "0")
}

// ill reports whether the metrics exporter knows a device and does not call it healthy.
func (m *machine) ill(id string) bool {
	healthy, known := m.told[id]
	return known && !healthy
}

// vdpaType is the value of vdpaType that a function's vDPA device has; "" for none.
func (m *machine) vdpaType(a topology.Address) string {
	if m.vdpa == nil {
		m.vdpa = sysfs.VDPADevices(m.sys)
	}
	return m.vdpa[a].Kind
}

// Hidden is what a container's namespaces hide of the devices it holds: netdevs always, RDMA devices in
// exclusive mode. Without it a device in a container would not be selected any more.
type Hidden struct {
	Driver   string `json:"driver"` // with another driver it is another device
	LinkType string `json:"linkType,omitempty"`
	PKey     string `json:"pKey,omitempty"`
	RDMA     bool   `json:"rdma,omitempty"`
}
