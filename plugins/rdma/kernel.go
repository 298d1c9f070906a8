// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"

	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/topology"
)

// DefaultRoutes returns a function that lists the netdevs with a default route. The node itself needs those
// of the main table, so they are never offered (HasDefaultRoute in pkg/utils/utils.go of the stock plugin,
// which reads IPv4 alone), and not before a restart of the daemon after the route has gone (VFs.scan). No
// sysfs file contains routes. They are read from the kernel by netlink, in the network namespace of the
// process, which must be the node's (hostNetwork: true). For any root other than /sys the function is nil,
// because the answer would describe another machine.
func DefaultRoutes(sysfsRoot string) func() (pools.Routes, error) {
	if filepath.Clean(sysfsRoot) != "/sys" {
		return nil
	}
	return defaultRoutes
}

func defaultRoutes() (routes pools.Routes, err error) {
	var all []netlink.Route
	anyTable := &netlink.Route{Table: syscall.RT_TABLE_UNSPEC}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := netlink.RouteListFiltered(family, anyTable, netlink.RT_FILTER_TABLE)
		if err != nil && !errors.Is(err, syscall.EAFNOSUPPORT) && !errors.Is(err, syscall.EOPNOTSUPP) {
			return routes, fmt.Errorf("list routes: %w", err)
		}
		all = append(all, list...)
	}
	main, other := defaultLinks(all)
	routes.Main, err = namesOf(main)
	if err != nil {
		return routes, err
	}
	routes.Other, err = namesOf(other)
	return routes, err
}

// namesOf returns the names of links by index, without links that were removed meanwhile.
func namesOf(links []int) (names []string, err error) {
	for _, index := range links {
		link, err := netlink.LinkByIndex(index)
		if errors.As(err, &netlink.LinkNotFoundError{}) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look up the netdev of a default route: %w", err)
		}
		names = append(names, namesOfLink(link)...)
	}
	return names, nil
}

// ovsDatapath is the netdev above the ports of all bridges of Open vSwitch (DP_DEV_NAME ovs-system of its
// kernel datapath, lib/dpif-netlink.c).
const ovsDatapath = "ovs-system"

// namesOfLink returns the name of a link and, for the internal port of a bridge of Open vSwitch, which has no
// netdev below itself (kind openvswitch, net/openvswitch/vport-internal_dev.c), that of the datapath.
func namesOfLink(link netlink.Link) []string {
	if link.Type() == "openvswitch" {
		return []string{link.Attrs().Name, ovsDatapath}
	}
	return []string{link.Attrs().Name}
}

// defaultLinks returns the indexes of the links of default routes in the main table, and of the others, each
// unique and ascending. Beside an IPv4 default route those of IPv6 are others: a switch of a rail announces
// itself as a router, and the kernel makes a default route of each announcement. A route that rejects
// packets, which the kernel adds for IPv6, is none.
func defaultLinks(routes []netlink.Route) (main, other []int) {
	hasIPv4 := slices.ContainsFunc(routes, func(r netlink.Route) bool {
		return r.Family == netlink.FAMILY_V4 && r.Table == syscall.RT_TABLE_MAIN && isDefault(r)
	})
	for _, route := range routes {
		if !isDefault(route) {
			continue
		}
		links := &other
		if route.Table == syscall.RT_TABLE_MAIN && (route.Family == netlink.FAMILY_V4 || !hasIPv4) {
			links = &main
		}
		if route.LinkIndex > 0 {
			*links = append(*links, route.LinkIndex)
		}
		for _, hop := range route.MultiPath {
			*links = append(*links, hop.LinkIndex)
		}
	}
	slices.Sort(main)
	slices.Sort(other)
	return slices.Compact(main), slices.Compact(other)
}

func isDefault(route netlink.Route) bool {
	if route.Dst != nil {
		if ones, _ := route.Dst.Mask.Size(); ones > 0 {
			return false
		}
	}
	return route.Type == syscall.RTN_UNICAST
}

// DDPProfiles returns a function that reads the DDP package of an Intel NIC: fw.app.name of devlink, of the
// function itself or of its PF (Documentation/networking/devlink/ice.rst), "" for none. No sysfs file
// contains it, so the function is nil for any root other than /sys. The stock plugin also runs ddptool if its
// image contains it; NICs that need ddptool (i40e) are not supported here.
func DDPProfiles(sysfsRoot string) func(function, pf topology.Address) string {
	if filepath.Clean(sysfsRoot) != "/sys" {
		return nil
	}
	return func(function, pf topology.Address) string {
		for _, a := range []topology.Address{function, pf} {
			if info, err := netlink.DevlinkGetDeviceInfoByNameAsMap("pci", a.String()); err == nil &&
				info["fw.app.name"] != "" {
				return info["fw.app.name"]
			}
		}
		return ""
	}
}

// CheckSharing returns an error if no HCA of this machine can be shared: if each RDMA device belongs to one
// network namespace (exclusive mode), containers cannot see the node's RDMA devices. The RDMA shared device
// plugin exits for the same reason (ValidateRdmaSystemMode in pkg/resources/resources_manager.go). No sysfs
// file contains the mode, so CheckSharing returns nil for any root other than /sys, and if the kernel does
// not report a mode: then no RDMA device exists yet, or the kernel has no modes.
func CheckSharing(sysfsRoot string) error {
	if filepath.Clean(sysfsRoot) != "/sys" {
		return nil
	}
	mode, err := netlink.RdmaSystemGetNetnsMode()
	if err != nil {
		return nil
	}
	return checkMode(mode)
}

func checkMode(mode string) error {
	if mode == "exclusive" {
		return errors.New("share HCAs: RDMA devices belong to one network namespace each (exclusive mode); " +
			"run \"rdma system set netns shared\" on the node before there are containers")
	}
	return nil
}

// LinkUp returns a function that sets a netdev up; nil for any root other than /sys.
func LinkUp(sysfsRoot string) func(netdev string) error {
	if filepath.Clean(sysfsRoot) != "/sys" {
		return nil
	}
	return func(netdev string) error {
		link, err := netlink.LinkByName(netdev)
		if err == nil {
			err = netlink.LinkSetUp(link)
		}
		if err != nil {
			return fmt.Errorf("bring %s up: %w", netdev, err)
		}
		return nil
	}
}

// BringUp sets the first netdev of every shared HCA up, once: RoCE has no port without it, and the RDMA
// shared device plugin does the same at its start (InitServers, same place). Without the privilege it logs an
// error and continues.
func (v *VFs) BringUp(up func(netdev string) error) {
	all, _ := v.All()
	seen := map[string]bool{}
	for _, pool := range all {
		for _, d := range pool.Devices {
			if pool.Resource.DeviceType != pools.SharedHCA || d.Missing() || seen[d.File()] {
				continue
			}
			seen[d.File()] = true
			netdev := v.downNetdev(d)
			if netdev == "" {
				continue
			}
			switch err := up(netdev); {
			case errors.Is(err, syscall.EPERM):
				v.log.Info("netdev is down and stays down, because the capability NET_ADMIN is missing",
					"netdev", netdev)
			case err != nil:
				v.log.Warn("netdev not set up; the HCA may lack a port", "device", d.Name(), "error", err)
			}
		}
	}
}

// downNetdev returns the first netdev of a device, "" if the netdev is up or there is none.
func (v *VFs) downNetdev(d pools.Device) string {
	names := v.finder.Functions().Netdevs(d.Address, d.Aux)
	if len(names) == 0 || pools.ReadText(v.finder.Sys,
		pools.NetdevFile(v.finder.Sys, d.Address, d.Aux, names[0], "operstate")) == "up" {
		return ""
	}
	return names[0]
}
