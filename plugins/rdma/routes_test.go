// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"net"
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
		{Dst: everything6, LinkIndex: 6, Table: main},
		{Dst: everything, LinkIndex: 8, Table: rail},
		{Dst: everything6, LinkIndex: 8, Table: rail},
	}
	for i := range routes {
		routes[i].Type = syscall.RTN_UNICAST
	}
	routes = append(routes, netlink.Route{
		Dst: everything6, LinkIndex: 1, Table: main, Type: syscall.RTN_UNREACHABLE,
	})
	gotMain, gotOther := defaultLinks(routes)
	if diff := cmp.Diff([]int{2, 3, 4, 5, 6}, gotMain); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]int{8}, gotOther); diff != "" {
		t.Error(diff)
	}
}

func TestDefaultRoutesOfRecordedMachine(t *testing.T) {
	if DefaultRoutes(t.TempDir()) != nil {
		t.Error("a folder has default routes")
	}
}
