// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
)

func TestDefaultLinks(t *testing.T) {
	_, everything, _ := net.ParseCIDR("0.0.0.0/0")
	_, subnet, _ := net.ParseCIDR("10.0.0.0/24")
	got := defaultLinks([]netlink.Route{
		{Dst: subnet, LinkIndex: 9},
		{Dst: everything, LinkIndex: 3},
		{Dst: nil, LinkIndex: 2},
		{Dst: everything, LinkIndex: 3, Priority: 100},
		{Dst: everything, MultiPath: []*netlink.NexthopInfo{{LinkIndex: 5}, {LinkIndex: 4}}},
	})
	if diff := cmp.Diff([]int{2, 3, 4, 5}, got); diff != "" {
		t.Error(diff)
	}
}

func TestDefaultRoutesOfRecordedMachine(t *testing.T) {
	if DefaultRoutes(t.TempDir()) != nil {
		t.Error("a folder has default routes")
	}
}
