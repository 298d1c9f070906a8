// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/vishvananda/netlink"
)

// DefaultRoutes returns a function that lists the netdevs with an IPv4 default route. The node itself needs
// these netdevs, so they are never offered (HasDefaultRoute in pkg/utils/utils.go of the stock plugin), and
// not before a restart of the daemon after the route has gone (VFs.scan). No sysfs file contains routes. They
// are read from the kernel by netlink, in the network namespace of the process, which must be the node's
// (hostNetwork: true). For any root other than /sys the function is nil, because the answer would describe
// another machine.
func DefaultRoutes(sysfsRoot string) func() ([]string, error) {
	if filepath.Clean(sysfsRoot) != "/sys" {
		return nil
	}
	return defaultRoutes
}

func defaultRoutes() ([]string, error) {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return nil, fmt.Errorf("list IPv4 routes: %w", err)
	}
	var netdevs []string
	for _, index := range defaultLinks(routes) {
		link, err := netlink.LinkByIndex(index)
		if errors.As(err, &netlink.LinkNotFoundError{}) {
			continue // the link was removed meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("look up the netdev of a default route: %w", err)
		}
		netdevs = append(netdevs, link.Attrs().Name)
	}
	return netdevs, nil
}

// defaultLinks returns the indexes of the links of default routes, unique and ascending.
func defaultLinks(routes []netlink.Route) []int {
	var links []int
	for _, route := range routes {
		if route.Dst != nil {
			if ones, _ := route.Dst.Mask.Size(); ones > 0 {
				continue
			}
		}
		if route.LinkIndex > 0 {
			links = append(links, route.LinkIndex)
		}
		for _, hop := range route.MultiPath {
			links = append(links, hop.LinkIndex)
		}
	}
	slices.Sort(links)
	return slices.Compact(links)
}
