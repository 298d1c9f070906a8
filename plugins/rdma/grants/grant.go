// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"maps"
	"strings"

	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/plugins/rdma/sysfs"
	"github.com/tandem-k8s/tandem/topology"
)

// Grant is what a container gets with one device, looked up when it gets it: the kernel numbers device nodes
// anew whenever a driver is bound.
type Grant struct {
	Name  string                       // what CDI calls it: the same for all replicas of an HCA
	Info  map[string]map[string]string // provider to key and value, as in the variable …_INFO
	Nodes []container.Node
	RDMA  []string          // names of its RDMA devices, where the resource is of RDMA devices
	VDPA  *sysfs.VDPADevice // where the resource is of vDPA devices
}

// provide adds the facts and device nodes of one provider. The providers and their keys are those of
// pkg/infoprovider of the stock plugin.
func (g *Grant) provide(provider string, info map[string]string, nodes ...container.Node) {
	g.Info[provider] = info
	g.Nodes = append(g.Nodes, nodes...)
}

// Grant looks up what a container gets with a device. With a replica of a shared HCA it gets the nodes of
// that HCA alone; the RDMA shared device plugin gives those of all HCAs of the pool (getDevicesSpec in
// pkg/resources/server.go there).
func (h Host) Grant(d pools.Device, r *pools.ResourceConfig) *Grant {
	g := &Grant{Name: d.Name(), Info: map[string]map[string]string{}}
	g.provide("generic", map[string]string{"deviceID": d.ID})
	switch driver := sysfs.Link(h.Sys, sysfs.File(d.Address, "", "driver")); {
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
	if d.Selector.NeedVhostNet && h.has("vhost-net") {
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

// uio has the key "mount" from the first allocation on; the stock plugin has it from the second.
func (h Host) uio(g *Grant, a topology.Address) {
	names := sysfs.Names(h.Sys, sysfs.File(a, "", "uio"))
	if len(names) == 0 {
		g.provide("uio", map[string]string{})
		return
	}
	path := "/dev/" + names[0]
	g.provide("uio", map[string]string{"mount": path}, node(path))
}

// rdma gives the nodes of all RDMA devices of a function; in switchdev mode there can be several. Of keys
// that several nodes have, the last one counts.
func (h Host) rdma(g *Grant, d pools.Device) {
	g.RDMA = sysfs.RDMADevices(h.Sys, d.Address, d.Aux)
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

// vdpa gives the node of a vDPA device for vhost; one for virtio is a netdev and has none. The key "mount" is
// there from the first allocation on; the stock plugin has it from the second.
func (h Host) vdpa(g *Grant, d pools.Device) {
	found, ok := sysfs.VDPADevices(h.Sys)[d.Address]
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

// vhost gives both nodes or, where one is missing, none; the facts are there in any case.
func (h Host) vhost(g *Grant) {
	const net, tun = "/dev/vhost-net", "/dev/net/tun"
	var nodes []container.Node
	if h.has("net/tun") {
		nodes = []container.Node{node(net), node(tun)}
	}
	g.provide("vhost", map[string]string{"net-mount": net, "tun-mount": tun}, nodes...)
}
