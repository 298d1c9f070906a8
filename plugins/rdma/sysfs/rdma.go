// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"io/fs"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// RDMADevices returns the RDMA devices of a function, or of one of its auxiliary devices if aux names one,
// sorted, without those whose names cannot be passed on. In exclusive mode the RDMA device of a VF in a
// container is hidden from the node. Its character devices are not hidden and name their device: of the
// classes in drivers/infiniband/core only infiniband has namespaces.
func RDMADevices(sys fs.FS, a topology.Address, aux string) []string {
	if names := topology.RDMADevices(sys, File(a, aux)); len(names) > 0 {
		return names
	}
	var names []string
	for _, node := range topology.Names(sys, File(a, aux, "infiniband_verbs")) {
		if name := Text(sys, File(a, aux, "infiniband_verbs", node, "ibdev")); name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return topology.PassableNames(names)
}
