package sysfs

import (
	"io/fs"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// RDMADevices names the RDMA devices of a function or, where aux is its name, of one of its auxiliary
// devices, sorted. In exclusive mode that of a VF in a container is hidden from the node, its character
// devices are not, and say whose they are: of the classes in drivers/infiniband/core infiniband alone has
// namespaces.
func RDMADevices(sys fs.FS, a topology.Address, aux string) []string {
	if names := Names(sys, File(a, aux, "infiniband")); len(names) > 0 {
		return names
	}
	var names []string
	for _, node := range Names(sys, File(a, aux, "infiniband_verbs")) {
		if name := Text(sys, File(a, aux, "infiniband_verbs", node, "ibdev")); name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
