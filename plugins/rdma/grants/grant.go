// SPDX-License-Identifier: Apache-2.0

// Package grants determines a container's access to the devices of a pool: environment and device nodes, or
// the names of CDI devices, a device-info file for Multus, and the description of the container's pairs. All
// of it is read at the time of the allocation, below the roots of a [Host].
//
//	pools.Device ──Host.Grant──▶ Grant ──Host.Edits──▶ container.Edits ◀──Host.Pairs, Pairs.Tell
//	                               ├──Spec.Write──▶ CDI spec of the pool
//	                               └──Host.WriteDevinfo──▶ device-info file
package grants

import (
	"cmp"
	"io/fs"
	"maps"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/topology"
)

// Host has the paths of the machine's files.
type Host struct {
	Sys        fs.FS       // sysfs
	SRIOV      pools.SRIOV // SR-IOV facts; nil for the files of Sys
	Dev        fs.FS       // device nodes; in answers always below /dev
	Disk       system.Disk // for device-info files and pairs files
	DevinfoDir string      // folder of Multus for device-info files
	CDI        *CDI        // nil: device nodes go through the kubelet
	PairsDir   string      // folder for the pairs files of containers
}

// Functions returns the reader of the host's SR-IOV facts.
func (h Host) Functions() pools.SRIOV {
	return cmp.Or[pools.SRIOV](h.SRIOV, pools.SRIOVFiles{Sys: h.Sys})
}

// CDI configures device nodes through the Container Device Interface instead of the kubelet. Names and files
// are those of the stock plugin (pkg/cdi/cdi.go), so that either plugin, and the operator, can clean up after
// the other.
type CDI struct {
	Disk system.Disk
	Dirs []string // folders of CDI specs: cleaned up in all of them, written to in the last
	// pass devices in the field CDIDevices of the kubelet's API, instead of an annotation as in the stock plugin
	Field bool
}

// Grant is a container's access to one device, read at the time of the allocation: the kernel renumbers
// device nodes whenever a driver is bound.
type Grant struct {
	Name  string                       // name in CDI: the same for all replicas of an HCA
	Info  map[string]map[string]string // provider to key and value, as in the variable …_INFO
	Nodes []container.Node
	RDMA  []string          // names of its RDMA devices, for a resource with RDMA
	VDPA  *pools.VDPADevice // for a resource with vDPA
}

// provide adds the facts and device nodes of one provider. Providers and keys are those of pkg/infoprovider
// of the stock plugin.
func (g *Grant) provide(provider string, info map[string]string, nodes ...container.Node) {
	g.Info[provider] = info
	g.Nodes = append(g.Nodes, nodes...)
}

// Grant returns the access to a device. A replica of a shared HCA has only the nodes of that HCA; the RDMA
// shared device plugin passes those of all HCAs of the pool (getDevicesSpec in pkg/resources/server.go
// there).
func (h Host) Grant(d pools.Device, r *pools.ResourceConfig) *Grant {
	g := &Grant{Name: d.Name(), Info: map[string]map[string]string{}}
	g.provide("generic", map[string]string{"deviceID": d.ID})
	switch driver := pools.ReadLink(h.Sys, pools.FunctionFile(d.Address, "", "driver")); {
	case h.Functions().VFIO(d.Address):
		h.vfio(g, d.Address)
	case driver == "uio", driver == "igb_uio":
		h.uio(g, d.Address)
	}
	if r.AdditionalInfo != nil {
		extra := map[string]string{}
		maps.Copy(extra, r.AdditionalInfo["*"])
		maps.Copy(extra, r.AdditionalInfo[d.Address.String()])
		g.provide("extra", extra)
	}
	if d.Selector == nil {
		return g // no longer selected: without options
	}
	switch {
	case d.Selector.VDPAType != "":
		h.vdpa(g, d)
	case d.Selector.IsRDMA:
		h.rdma(g, d)
	}
	if d.Selector.NeedVhostNet && container.HasNode(h.Dev, "/dev/vhost-net") {
		h.vhost(g)
	}
	return g
}

func (h Host) vfio(g *Grant, a topology.Address) {
	const common = "/dev/vfio/vfio"
	info := map[string]string{"mount": common}
	nodes := []container.Node{node(common)}
	if path, host := h.vfioNode(a); path != "" {
		info["dev-mount"] = path
		nodes = append(nodes, container.Node{Path: path, Host: host})
	}
	g.provide("vfio", info, nodes...)
}

// uio has the key "mount" from the first allocation on, in the stock plugin from the second.
func (h Host) uio(g *Grant, a topology.Address) {
	names := topology.Names(h.Sys, pools.FunctionFile(a, "", "uio"))
	if len(names) == 0 {
		g.provide("uio", map[string]string{})
		return
	}
	path := "/dev/" + names[0]
	g.provide("uio", map[string]string{"mount": path}, node(path))
}

// rdma adds the nodes of all RDMA devices of a function; in switchdev mode there can be several. If several
// nodes have the same key, the last one counts.
func (h Host) rdma(g *Grant, d pools.Device) {
	g.RDMA = pools.RDMADevices(h.Sys, d.Address, d.Aux)
	info := map[string]string{}
	var nodes []container.Node
	for _, device := range g.RDMA {
		for _, path := range h.rdmaNodes(d, device) {
			nodes = append(nodes, node(path))
			for _, key := range []string{"uverbs", "umad", "issm", "rdma_cm"} {
				if strings.Contains(path, key) {
					info[key] = path
					break
				}
			}
		}
	}
	if len(g.RDMA) > 0 {
		info["rdma_dev"] = g.RDMA[0]
	}
	g.provide("rdma", info, nodes...)
}

// vdpa adds the node of a vDPA device for vhost; a device for virtio is a netdev without a node. The key
// "mount" exists from the first allocation on, in the stock plugin from the second.
func (h Host) vdpa(g *Grant, d pools.Device) {
	found, ok := pools.VDPADevices(h.Sys)[d.Address]
	if !ok {
		return
	}
	g.VDPA = &found
	if found.Kind != "vhost" || found.Node == "" {
		g.provide("vdpa", map[string]string{})
		return
	}
	g.provide("vdpa", map[string]string{"mount": found.Node}, node(found.Node))
}

// vhost adds both nodes, or none if one is missing; the facts are always added.
func (h Host) vhost(g *Grant) {
	const net, tun = "/dev/vhost-net", "/dev/net/tun"
	var nodes []container.Node
	if container.HasNode(h.Dev, tun) {
		nodes = []container.Node{node(net), node(tun)}
	}
	g.provide("vhost", map[string]string{"net-mount": net, "tun-mount": tun}, nodes...)
}
