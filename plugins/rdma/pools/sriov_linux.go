// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"errors"
	"io/fs"
	"sync"

	"github.com/k8snetworkplumbingwg/sriovnet"
	"github.com/k8snetworkplumbingwg/sriovnet/pkg/utils/netlinkops"
	"github.com/vishvananda/netlink"

	"github.com/tandem-k8s/tandem/topology"
)

// live reads /sys through sriovnet, like the stock plugin and the CNI plugins, so that all programs of a node
// get the same answers. If sriovnet fails, SRIOVFiles answers: sriovnet supports only domains of four digits,
// and cannot list a folder that changes meanwhile. Representors come from SRIOVFiles, which lists the folders
// of a PF once, while sriovnet lists them for each VF.
type live struct{ SRIOVFiles }

func newLive(sys fs.FS) live {
	setNetlink()
	return live{SRIOVFiles{sys}}
}

// setNetlink prevents sriovnet from reading devlink ports before it reads /sys, where phys_port_name has the
// same content (devlink_compat_phys_port_name_get in net/devlink/port.c). A list of all ports waits for each
// NIC that is creating VFs or whose firmware recovers (devl_lock in net/devlink/netlink.c), which takes
// minutes.
var setNetlink = sync.OnceFunc(func() {
	netlinkops.SetNetlinkOps(noDevlink{netlinkops.GetNetlinkOps()})
})

type noDevlink struct{ netlinkops.NetlinkOps }

var errNotAsked = errors.New("devlink is not asked")

func (noDevlink) DevLinkGetAllPortList() ([]*netlink.DevlinkPort, error) { return nil, errNotAsked }

func (noDevlink) DevLinkGetDevicePortList(string, string) ([]*netlink.DevlinkPort, error) {
	return nil, errNotAsked
}

func (l live) Uplink(a topology.Address) string {
	if name, err := sriovnet.GetUplinkRepresentor(a.String()); err == nil {
		return name
	}
	return l.SRIOVFiles.Uplink(a)
}

func (l live) Netdevs(a topology.Address, aux string) []string {
	list, name := sriovnet.GetNetDevicesFromPci, a.String()
	if aux != "" {
		list, name = sriovnet.GetNetDevicesFromAux, aux
	}
	if names, err := list(name); err == nil {
		return topology.PassableNames(names)
	}
	return l.SRIOVFiles.Netdevs(a, aux)
}

func (live) VFIO(a topology.Address) bool { return sriovnet.IsVfPciVfioBound(a.String()) }

func (l live) DefaultPKey(a topology.Address) string {
	if key, err := sriovnet.GetDefaultPKeyFromPci(a.String()); err == nil {
		return key
	}
	return l.SRIOVFiles.DefaultPKey(a)
}
