package sysfs

import (
	"errors"
	"io/fs"
	"sync"

	"github.com/k8snetworkplumbingwg/sriovnet"
	"github.com/k8snetworkplumbingwg/sriovnet/pkg/utils/netlinkops"
	"github.com/vishvananda/netlink"

	"github.com/tandem-k8s/tandem/topology"
)

// live asks /sys by sriovnet, which the stock plugin and the CNI plugins ask, so that all of a node's
// programs have the same answers. Where sriovnet has none, Files do: it takes no domain of more than four
// digits, and does not list a folder that changes while it looks.
type live struct{ Files }

func newLive(sys fs.FS) live {
	setNetlink()
	return live{Files{sys}}
}

// setNetlink keeps sriovnet from asking for devlink ports before it looks into /sys, where phys_port_name
// says the same (devlink_compat_phys_port_name_get in net/devlink/port.c). A list of all ports waits for each
// NIC that is making VFs or whose firmware recovers (devl_lock in net/devlink/netlink.c), which takes
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

func (l live) PF(vf topology.Address) (topology.Address, bool) {
	if name, err := sriovnet.GetPfPciFromVfPci(vf.String()); err == nil {
		if pf, err := topology.ParseAddress(name); err == nil {
			return pf, true
		}
	}
	return l.Files.PF(vf)
}

func (l live) Index(vf topology.Address) int {
	index, err := sriovnet.GetVfIndexByPciAddress(vf.String())
	return or(index, err, func() int { return l.Files.Index(vf) })
}

func (l live) Uplink(a topology.Address) string {
	name, err := sriovnet.GetUplinkRepresentor(a.String())
	return or(name, err, func() string { return l.Files.Uplink(a) })
}

func (l live) Representor(pf topology.Address, index int) string {
	name, err := sriovnet.GetVfRepresentor(pf.String(), index)
	return or(name, err, func() string { return l.Files.Representor(pf, index) })
}

func (l live) Netdevs(a topology.Address, aux string) []string {
	list, name := sriovnet.GetNetDevicesFromPci, a.String()
	if aux != "" {
		list, name = sriovnet.GetNetDevicesFromAux, aux
	}
	names, err := list(name)
	return or(names, err, func() []string { return l.Files.Netdevs(a, aux) })
}

func (live) VFIO(a topology.Address) bool { return sriovnet.IsVfPciVfioBound(a.String()) }

func (l live) DefaultPKey(a topology.Address) string {
	key, err := sriovnet.GetDefaultPKeyFromPci(a.String())
	return or(key, err, func() string { return l.Files.DefaultPKey(a) })
}

// or is sriovnet's answer or, where it has none, that of the files.
func or[T any](answer T, err error, files func() T) T {
	if err != nil {
		return files()
	}
	return answer
}
