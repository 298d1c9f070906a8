// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"net"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
)

func TestDefaultLinks(t *testing.T) {
	_, everything, _ := net.ParseCIDR("0.0.0.0/0")
	_, subnet, _ := net.ParseCIDR("10.0.0.0/24")
	_, everything6, _ := net.ParseCIDR("::/0")
	const main, rail = syscall.RT_TABLE_MAIN, 101
	routes := []netlink.Route{
		{Dst: subnet, LinkIndex: 9, Table: main},
		{Dst: everything, LinkIndex: 3, Table: main},
		{Dst: nil, LinkIndex: 2, Table: main},
		{Dst: everything, LinkIndex: 3, Priority: 100, Table: main},
		{Dst: everything, MultiPath: []*netlink.NexthopInfo{{LinkIndex: 5}, {LinkIndex: 4}}, Table: main},
		{Dst: everything6, LinkIndex: 6, Table: main}, // of a rail's router
		{Dst: everything, LinkIndex: 8, Table: rail},
		{Dst: everything6, LinkIndex: 8, Table: rail},
	}
	for i, route := range routes {
		routes[i].Type, routes[i].Family = syscall.RTN_UNICAST, netlink.FAMILY_V4
		if route.Dst == everything6 {
			routes[i].Family = netlink.FAMILY_V6
		}
	}
	routes = append(routes, netlink.Route{
		Dst: everything6, LinkIndex: 1, Table: main, Type: syscall.RTN_UNREACHABLE, Family: netlink.FAMILY_V6,
	})
	gotMain, gotOther := defaultLinks(routes)
	if diff := cmp.Diff([]int{2, 3, 4, 5}, gotMain); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]int{6, 8}, gotOther); diff != "" {
		t.Error(diff)
	}
	onlyIPv6 := slices.DeleteFunc(routes, func(r netlink.Route) bool { return r.Family == netlink.FAMILY_V4 })
	if gotMain, _ = defaultLinks(onlyIPv6); !slices.Equal(gotMain, []int{6}) {
		t.Errorf("without IPv4 the links are %v", gotMain)
	}
}

func TestDefaultRoutesOfRecordedMachine(t *testing.T) {
	if DefaultRoutes(t.TempDir()) != nil {
		t.Error("a folder has default routes")
	}
}

// TestInternalPortOfOVS: below the internal port of a bridge of Open vSwitch are the ports of the datapath.
func TestInternalPortOfOVS(t *testing.T) {
	attributes := netlink.LinkAttrs{Name: "br-ex"}
	for kind, want := range map[string][]string{
		"openvswitch": {"br-ex", "ovs-system"}, "bridge": {"br-ex"},
	} {
		got := namesOfLink(&netlink.GenericLink{LinkAttrs: attributes, LinkType: kind})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", kind, diff)
		}
	}
}
