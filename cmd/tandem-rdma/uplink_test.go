// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/programs"
)

// Variables with which the test binary enters a node: the netdev of its default route, and the sysfs that
// becomes /sys. Routes are in no file, so that the daemon reads them only if its sysfs is /sys.
const (
	defaultRoute = "TANDEM_RDMA_TEST_DEFAULT_ROUTE"
	nodeSysfs    = "TANDEM_RDMA_TEST_SYSFS"
)

// TestUplinkIsNotOffered: the ports of a bond below the VLAN of the default route are the node's own.
func TestUplinkIsNotOffered(t *testing.T) {
	needNamespaces(t)
	s := functions.New()
	for i, address := range []string{"0000:17:00.0", "0000:17:00.1", "0000:29:00.0"} {
		s.Function(address, functions.Facts{"netdev": fmt.Sprint("ens", i), "rdma": fmt.Sprint("mlx5_", i)})
	}
	s.Upper("bond0", "ens0", "ens1")
	s.Upper("vlan7", "bond0")
	n := nodeOf(t, s.FS())
	n.write(t, "config.json", pool(`"isRdma": true`))
	kubelet := kubelettest.Start(t, n.kubelet)
	cmd := n.daemon("--sysfs-root=/sys")
	cmd.SysProcAttr = namespaces()
	cmd.Env = append(cmd.Env, defaultRoute+"=vlan7", nodeSysfs+"="+n.path("sys"))
	daemon := programs.Start(t, cmd)
	healthy := healthyOf(kubelettest.Await(t, kubelettest.Await(t, kubelet.Plugins).Lists))
	daemon.Stop(t, syscall.SIGTERM)
	if want := []string{"0000:29:00.0"}; !slices.Equal(healthy, want) {
		t.Errorf("offers %v; want %v:\n%s", healthy, want, daemon.Log())
	}
}

// namespaces are those of a process that enters a node. In a new user namespace no privilege is necessary.
func namespaces() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
}

// needNamespaces skips the test on a kernel that refuses namespaces.
func needNamespaces(t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "exit 0")
	cmd.SysProcAttr = namespaces()
	if err := cmd.Run(); err != nil {
		t.Skipf("this kernel gives no namespaces: %v", err)
	}
}

// enterNode turns the namespaces of this process into those of a node. The loopback netdev gets the name of
// the uplink, because it needs no kernel module.
func enterNode(uplink, sysfs string) error {
	link, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find the loopback netdev: %w", err)
	}
	_, everything, err := net.ParseCIDR("0.0.0.0/0")
	return errors.Join(
		err, syscall.Mount(sysfs, "/sys", "", syscall.MS_BIND, ""),
		netlink.LinkSetName(link, uplink), netlink.LinkSetUp(link),
		netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: everything}),
	)
}
