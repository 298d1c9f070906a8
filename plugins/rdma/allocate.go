package rdma

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// grant is what a container gets with one device, looked up when it gets it: the kernel numbers device nodes anew
// whenever a driver is bound.
type grant struct {
	info  map[string]map[string]string // provider to key and value, as in the variable …_INFO
	nodes []*v1beta1.DeviceSpec
	rdma  []string    // names of its RDMA devices, where the resource is of RDMA devices
	vdpa  *vdpaDevice // where the resource is of vDPA devices
}

// provide adds the facts and device nodes of one provider. The providers and their keys are those of pkg/infoprovider of
// the stock plugin.
func (g *grant) provide(provider string, info map[string]string, nodes ...*v1beta1.DeviceSpec) {
	g.info[provider] = info
	g.nodes = append(g.nodes, nodes...)
}

// grant looks up what a container gets with a device.
func (h Host) grant(d Device, r *ResourceConfig) *grant {
	g := &grant{info: map[string]map[string]string{}}
	g.provide("generic", map[string]string{"deviceID": d.ID})
	address := d.Address.String()
	switch readLink(h.Sys, inFunction(address, "driver")) {
	case "vfio-pci":
		h.vfio(g, address)
	case "uio", "igb_uio":
		h.uio(g, address)
	}
	if r.AdditionalInfo != nil {
		extra := map[string]string{}
		maps.Copy(extra, r.AdditionalInfo["*"])
		maps.Copy(extra, r.AdditionalInfo[address])
		g.provide("extra", extra)
	}
	if d.selector == nil {
		return g // no longer selected: without options
	}
	switch {
	case d.selector.VDPAType != "":
		h.vdpa(g, d)
	case d.selector.IsRDMA:
		h.rdma(g, d)
	}
	if d.selector.NeedVhostNet && h.has("vhost-net") {
		h.vhost(g)
	}
	return g
}

func (h Host) vfio(g *grant, id string) {
	const common = "/dev/vfio/vfio"
	info := map[string]string{"mount": common}
	nodes := []*v1beta1.DeviceSpec{spec(common, common)}
	if container, host := h.vfioNode(id); container != "" {
		info["dev-mount"] = container
		nodes = append(nodes, spec(container, host))
	}
	g.provide("vfio", info, nodes...)
}

// uio has the key "mount" from the first allocation on; the stock plugin has it from the second.
func (h Host) uio(g *grant, id string) {
	names := readNames(h.Sys, inFunction(id, "uio"))
	if len(names) == 0 {
		g.provide("uio", map[string]string{})
		return
	}
	node := "/dev/" + names[0]
	g.provide("uio", map[string]string{"mount": node}, spec(node, node))
}

// rdma gives the nodes of all RDMA devices of a function; in switchdev mode there can be several. Of keys that several
// nodes have, the last one counts.
func (h Host) rdma(g *grant, d Device) {
	g.rdma = h.rdmaDevices(d)
	info := map[string]string{}
	var nodes []*v1beta1.DeviceSpec
	for _, device := range g.rdma {
		for _, node := range h.rdmaNodes(d, device) {
			nodes = append(nodes, spec(node, node))
			for _, key := range []string{"uverbs", "umad", "issm", "rdma_cm"} {
				if strings.Contains(node, key) {
					info[key] = node
					break
				}
			}
		}
	}
	if len(g.rdma) > 0 {
		info["rdma_dev"] = g.rdma[0]
	}
	g.provide("rdma", info, nodes...)
}

// vdpa gives the node of a vDPA device for vhost; one for virtio is a netdev and has none. The key "mount" is there from the
// first allocation on; the stock plugin has it from the second.
func (h Host) vdpa(g *grant, d Device) {
	found, ok := vdpaDevices(h.Sys)[d.Address]
	if !ok {
		return
	}
	g.vdpa = &found
	if found.kind != "vhost" || found.node == "" {
		g.provide("vdpa", map[string]string{})
		return
	}
	g.provide("vdpa", map[string]string{"mount": found.node}, spec(found.node, found.node))
}

// vhost gives both nodes or, where one is missing, none; the facts are there in any case.
func (h Host) vhost(g *grant) {
	const net, tun = "/dev/vhost-net", "/dev/net/tun"
	var nodes []*v1beta1.DeviceSpec
	if h.has("net/tun") {
		nodes = []*v1beta1.DeviceSpec{spec(net, net), spec(tun, tun)}
	}
	g.provide("vhost", map[string]string{"net-mount": net, "tun-mount": tun}, nodes...)
}

// answer puts the grants of a container together; ids gives the order.
func answer(resource string, ids []string, grants map[string]*grant) (*v1beta1.ContainerAllocateResponse, error) {
	response := &v1beta1.ContainerAllocateResponse{}
	info := map[string]map[string]map[string]string{}
	for _, id := range ids {
		info[id] = grants[id].info
		for _, node := range grants[id].nodes {
			same := func(other *v1beta1.DeviceSpec) bool { return other.HostPath == node.HostPath }
			if !slices.ContainsFunc(response.Devices, same) {
				response.Devices = append(response.Devices, node)
			}
		}
	}
	infoJSON, err := json.Marshal(info)
	if err != nil {
		return nil, fmt.Errorf("write device facts of %s: %w", resource, err)
	}
	name := variable(resource)
	response.Envs = map[string]string{name: strings.Join(ids, ","), name + "_INFO": string(infoJSON)}
	return response, nil
}

// variable names the environment variable with the device IDs of a resource. Of all characters that a shell would not
// take, only dots are replaced: users read PCIDEVICE_NVIDIA_COM_SRIOV-RDMA-VF today (GetEnvs in pkg/resources/pool_stub.go
// of the stock plugin).
func variable(resource string) string {
	prefix, name, _ := strings.Cut(resource, "/")
	return strings.ToUpper(strings.ReplaceAll("PCIDEVICE_"+prefix+"_"+name, ".", "_"))
}
