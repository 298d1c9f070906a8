// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"cmp"
	"encoding/json"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
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

// addFacts adds the facts and device nodes of one provider. Providers and keys are those of pkg/infoprovider
// of the stock plugin.
func (g *Grant) addFacts(provider string, info map[string]string, nodes ...container.Node) {
	g.Info[provider] = info
	g.Nodes = append(g.Nodes, nodes...)
}

// Grant returns the access to a device. A replica of a shared HCA has only the nodes of that HCA; the RDMA
// shared device plugin passes those of all HCAs of the pool (getDevicesSpec in pkg/resources/server.go
// there).
func (h Host) Grant(d pools.Device, r *pools.ResourceConfig) *Grant {
	g := &Grant{Name: d.Name(), Info: map[string]map[string]string{}}
	g.addFacts("generic", map[string]string{"deviceID": d.ID})
	switch driver := pools.ReadLink(h.Sys, pools.FunctionFile(d.Address, "", "driver")); {
	case h.Functions().VFIO(d.Address):
		h.addVFIO(g, d.Address)
	case driver == "uio", driver == "igb_uio":
		h.addUIO(g, d.Address)
	}
	if r.AdditionalInfo != nil {
		extra := map[string]string{}
		maps.Copy(extra, r.AdditionalInfo["*"])
		maps.Copy(extra, r.AdditionalInfo[d.Address.String()])
		g.addFacts("extra", extra)
	}
	if d.Selector == nil {
		return g // no longer selected: without options
	}
	switch {
	case d.Selector.VDPAType != "":
		h.addVDPA(g, d)
	case d.Selector.IsRDMA:
		h.addRDMA(g, d)
	}
	if d.Selector.NeedVhostNet && container.HasNode(h.Dev, "/dev/vhost-net") {
		h.addVhost(g)
	}
	return g
}

// addVFIO adds the node of a function's IOMMU group, if it has one. Without an IOMMU the node has another
// name on the host (vfio_create_group in drivers/vfio/group.c).
func (h Host) addVFIO(g *Grant, a topology.Address) {
	const common = "/dev/vfio/vfio"
	info := map[string]string{"mount": common}
	nodes := []container.Node{newNode(common)}
	link := pools.FunctionFile(a, "", "iommu_group")
	if group := pools.ReadLink(h.Sys, link); group != "" {
		node := newNode("/dev/vfio/" + group)
		if pools.ReadText(h.Sys, path.Join(link, "name")) == "vfio-noiommu" {
			node.Host = "/dev/vfio/noiommu-" + group
		}
		info["dev-mount"] = node.Path
		nodes = append(nodes, node)
	}
	g.addFacts("vfio", info, nodes...)
}

// addUIO has the key "mount" from the first allocation on, in the stock plugin from the second.
func (h Host) addUIO(g *Grant, a topology.Address) {
	names := topology.Names(h.Sys, pools.FunctionFile(a, "", "uio"))
	if len(names) == 0 {
		g.addFacts("uio", map[string]string{})
		return
	}
	path := "/dev/" + names[0]
	g.addFacts("uio", map[string]string{"mount": path}, newNode(path))
}

// addRDMA adds the nodes of all RDMA devices of a function; in switchdev mode there can be several. If
// several nodes have the same key, the last one counts.
func (h Host) addRDMA(g *Grant, d pools.Device) {
	g.RDMA = pools.RDMADevices(h.Sys, d.Address, d.Aux)
	info := map[string]string{}
	var nodes []container.Node
	for _, device := range g.RDMA {
		for _, path := range h.rdmaNodes(d, device) {
			nodes = append(nodes, newNode(path))
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
	g.addFacts("rdma", info, nodes...)
}

// addVDPA adds the node of a vDPA device for vhost; a device for virtio is a netdev without a node. The key
// "mount" exists from the first allocation on, in the stock plugin from the second.
func (h Host) addVDPA(g *Grant, d pools.Device) {
	found, ok := pools.VDPADevices(h.Sys)[d.Address.String()]
	if !ok {
		return
	}
	g.VDPA = &found
	if found.Kind != "vhost" || found.Node == "" {
		g.addFacts("vdpa", map[string]string{})
		return
	}
	g.addFacts("vdpa", map[string]string{"mount": found.Node}, newNode(found.Node))
}

// addVhost adds both nodes, or none if one is missing; the facts are always added.
func (h Host) addVhost(g *Grant) {
	const net, tun = "/dev/vhost-net", "/dev/net/tun"
	var nodes []container.Node
	if container.HasNode(h.Dev, tun) {
		nodes = []container.Node{newNode(net), newNode(tun)}
	}
	g.addFacts("vhost", map[string]string{"net-mount": net, "tun-mount": tun}, nodes...)
}

// Edits merges the grants of a container in the order of the device IDs, all of which are in grants.
func (h Host) Edits(pool pools.Pool, order []string, grants map[string]*Grant) container.Edits {
	var edits container.Edits
	info := map[string]map[string]map[string]string{}
	for _, id := range order {
		info[id] = grants[id].Info
		edits.AddNodes(grants[id].Nodes...)
	}
	infoJSON, _ := json.Marshal(info) // maps of strings have a form in JSON
	name := variableName(pool.Name)
	edits.Env = map[string]string{name: strings.Join(order, ","), name + "_INFO": string(infoJSON)}
	if pool.Resource.DeviceType == pools.SharedHCA {
		edits.Env = map[string]string{name: strings.Join(listAddresses(pool, order), ",")}
	}
	if pool.Resource.Tandem.Alias {
		for _, suffix := range []string{"", "_INFO"} {
			if value, ok := edits.Env[name+suffix]; ok {
				edits.Env[shellName(name)+suffix] = value
			}
		}
	}
	if h.CDI != nil {
		edits.Nodes, edits.Named = nil, h.CDI.nameDevices(cdiPoolOf(pool), order, grants)
	}
	return edits
}

// listAddresses returns the addresses of devices, equal for replicas of one HCA. For shared HCAs this list is
// the container's only variable: the RDMA shared device plugin sets none, and tandem verify reads this one.
func listAddresses(pool pools.Pool, ids []string) []string {
	var list []string
	for _, id := range ids {
		if d, ok := pool.Device(id); ok {
			list = append(list, d.Address.String())
		}
	}
	return list
}

// variableName returns the name of the environment variable with the device IDs of a resource. Only dots are
// replaced, although shells reject other characters too, because users read names such as
// PCIDEVICE_NVIDIA_COM_SRIOV-RDMA-VF (GetEnvs in pkg/resources/pool_stub.go of the stock plugin).
func variableName(resource string) string {
	prefix, name, _ := strings.Cut(resource, "/")
	return strings.ToUpper(strings.ReplaceAll("PCIDEVICE_"+prefix+"_"+name, ".", "_"))
}

// shellName returns a variable's name without characters that shells reject.
func shellName(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, name)
}

// rdmaNodes returns the character devices of an RDMA device, in the order of GetRdmaCharDevices of rdmamap:
// communication manager of old kernels, issm and umad per port, uverbs, and finally the connection manager
// that all devices share.
//
// rdmamap searches all of /sys/class for every device. The class devices have the same parent as their RDMA
// device (ib_umad_init_port_dev in drivers/infiniband/core/user_mad.c, ib_uverbs_add_one in uverbs_main.c),
// so rdmaNodes reads them there: with the same result below any root, and at a cost independent of the number
// of VFs.
func (h Host) rdmaNodes(d pools.Device, rdma string) []string {
	var nodes []string
	for _, class := range []struct{ dir, prefix string }{
		{"infiniband_cm", "ucm"},
		{"infiniband_mad", "issm"},
		{"infiniband_mad", "umad"},
		{"infiniband_verbs", "uverbs"},
	} {
		dir := d.File(class.dir)
		names := slices.DeleteFunc(topology.Names(h.Sys, dir), func(name string) bool {
			owner := path.Join(dir, name, "ibdev")
			return !strings.HasPrefix(name, class.prefix) || pools.ReadText(h.Sys, owner) != rdma
		})
		slices.SortFunc(names, func(a, b string) int {
			return cmp.Compare(numberOf(a, class.prefix), numberOf(b, class.prefix))
		})
		for _, name := range names {
			nodes = append(nodes, "/dev/infiniband/"+name)
		}
	}
	if container.HasNode(h.Dev, "/dev/infiniband/rdma_cm") {
		nodes = append(nodes, "/dev/infiniband/rdma_cm")
	}
	return nodes
}

func numberOf(name, prefix string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(name, prefix))
	if err != nil {
		return -1
	}
	return n
}

// newNode returns a device node with the same path in the container and on the host.
func newNode(path string) container.Node { return container.Node{Path: path, Host: path} }
