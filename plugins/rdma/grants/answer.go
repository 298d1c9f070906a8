// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/topology"
)

// Edits merges the grants of a container in the order of the device IDs, all of which are in grants.
func (h Host) Edits(pool pools.Pool, order []string, grants map[string]*Grant) (container.Edits, error) {
	var edits container.Edits
	info := map[string]map[string]map[string]string{}
	for _, id := range order {
		info[id] = grants[id].Info
		edits.AddNodes(grants[id].Nodes...)
	}
	infoJSON, err := json.Marshal(info)
	if err != nil {
		return edits, fmt.Errorf("write device facts of %s: %w", pool.Name, err)
	}
	name := variable(pool.Name)
	edits.Env = map[string]string{name: strings.Join(order, ","), name + "_INFO": string(infoJSON)}
	if pool.Resource.DeviceType == pools.SharedHCA {
		edits.Env = map[string]string{name: strings.Join(addresses(pool, order), ",")}
	}
	if pool.Resource.Tandem.Alias {
		for _, suffix := range []string{"", "_INFO"} {
			if value, ok := edits.Env[name+suffix]; ok {
				edits.Env[shellName(name)+suffix] = value
			}
		}
	}
	if h.CDI != nil {
		edits.Nodes, edits.Named = nil, h.CDI.named(cdiPoolOf(pool), order, grants)
	}
	return edits, nil
}

// addresses returns the addresses of devices, equal for replicas of one HCA. For shared HCAs this list is the
// container's only variable: the RDMA shared device plugin sets none, and tandem verify reads this one.
func addresses(pool pools.Pool, ids []string) []string {
	var list []string
	for _, id := range ids {
		if d, ok := pool.Device(id); ok {
			list = append(list, d.Address.String())
		}
	}
	return list
}

// variable returns the name of the environment variable with the device IDs of a resource. Only dots are
// replaced, although shells reject other characters too, because users read names such as
// PCIDEVICE_NVIDIA_COM_SRIOV-RDMA-VF (GetEnvs in pkg/resources/pool_stub.go of the stock plugin).
func variable(resource string) string {
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
			return cmp.Compare(number(a, class.prefix), number(b, class.prefix))
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

func number(name, prefix string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(name, prefix))
	if err != nil {
		return -1
	}
	return n
}

// vfioNode returns the node of a function's IOMMU group in the container and on the host, which differ
// without an IOMMU (vfio_create_group in drivers/vfio/group.c). Both are "" for a function without a group.
func (h Host) vfioNode(a topology.Address) (inside, host string) {
	link := pools.FunctionFile(a, "", "iommu_group")
	group := pools.ReadLink(h.Sys, link)
	if group == "" {
		return "", ""
	}
	inside = "/dev/vfio/" + group
	if pools.ReadText(h.Sys, path.Join(link, "name")) == "vfio-noiommu" {
		return inside, "/dev/vfio/noiommu-" + group
	}
	return inside, inside
}

// node returns a device node with the same path in the container and on the host.
func node(path string) container.Node { return container.Node{Path: path, Host: path} }
