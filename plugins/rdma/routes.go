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
	if routes.Main, err = namesOf(main); err != nil {
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
