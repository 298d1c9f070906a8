package sysfs

import (
	"io/fs"
	"regexp"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// physicalPort is the phys_port_name of a netdev that is a port of its NIC; of a representor it is "pf0vf3"
// and the like.
var physicalPort = regexp.MustCompile(`^p\d+$`)

// Uplink is the netdev of a PF in switchdev mode that is its port, and not a representor; "" in any other
// mode. It is that of GetUplinkRepresentor in sriovnet, which the stock plugin asks.
func Uplink(sys fs.FS, pf topology.Address) string {
	for _, name := range Names(sys, File(pf, "", "net")) {
		netdev := File(pf, "", "net", name)
		port := Text(sys, netdev+"/phys_port_name")
		if Text(sys, netdev+"/phys_switch_id") != "" && physicalPort.MatchString(port) {
			return name
		}
	}
	return ""
}

// DefaultPKey is partition key 0 of port 1 of a function's first RDMA device; "" where there is none.
func DefaultPKey(sys fs.FS, a topology.Address) string {
	devices := Names(sys, File(a, "", "infiniband"))
	if len(devices) == 0 {
		return ""
	}
	return Text(sys, File(a, "", "infiniband", devices[0], "ports/1/pkeys/0"))
}

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
