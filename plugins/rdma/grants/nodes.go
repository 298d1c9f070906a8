// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"cmp"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/plugins/rdma/sysfs"
	"github.com/tandem-k8s/tandem/topology"
)

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
			return !strings.HasPrefix(name, class.prefix) || sysfs.Text(h.Sys, owner) != rdma
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
	link := sysfs.File(a, "", "iommu_group")
	group := sysfs.Link(h.Sys, link)
	if group == "" {
		return "", ""
	}
	inside = "/dev/vfio/" + group
	if sysfs.Text(h.Sys, path.Join(link, "name")) == "vfio-noiommu" {
		return inside, "/dev/vfio/noiommu-" + group
	}
	return inside, inside
}

// node returns a device node with the same path in the container and on the host.
func node(path string) container.Node { return container.Node{Path: path, Host: path} }
