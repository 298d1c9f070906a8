// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"
)

// Addresses in QEMU's user network.
const (
	address = "10.0.2.15/24"
	gateway = "10.0.2.2" // the host's loopback
)

func setUpNetwork() error {
	// Pods have addresses of QEMU's network, for which the guest answers, so that they reach the API server.
	for _, setting := range []string{"ip_forward", "conf/all/proxy_arp"} {
		if err := os.WriteFile("/proc/sys/net/ipv4/"+setting, []byte("1"), 0o644); err != nil {
			return err
		}
	}
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	link, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	own, err := netlink.ParseAddr(address)
	if err != nil {
		return err
	}
	// Otherwise the kernel adds all RDMA devices to every network namespace, with 1024 GIDs each, which takes a
	// second here. Pods with traffic need it: in mode exclusive perftest sees no device in a pod's namespace.
	if told("rdma") != "shared" {
		if err := netlink.RdmaSystemSetNetnsMode("exclusive"); err != nil {
			return fmt.Errorf("keep RDMA devices in their network namespace: %w", err)
		}
	}
	return errors.Join(
		netlink.LinkSetUp(loopback),
		netlink.LinkSetUp(link),
		netlink.AddrAdd(link, own),
		netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(gateway)}),
	)
}

// createVFs creates VFs on every NIC, by default as many as the host requests.
func createVFs() error {
	number := told("vfs")
	if wanted, err := os.ReadFile("/etc/vfs"); err == nil {
		number = strings.TrimSpace(string(wanted))
	}
	files, err := filepath.Glob("/sys/bus/pci/drivers/igb/*/sriov_numvfs")
	if err == nil && len(files) == 0 {
		err = errors.New("no NIC has VFs")
	}
	if err != nil {
		return err
	}
	var all errgroup.Group // each takes the kernel some time
	for _, file := range files {
		all.Go(func() error { return os.WriteFile(file, []byte(number), 0o644) })
	}
	return all.Wait()
}

// createRDMA creates a software RDMA device over every NIC and VF without one, with mlx5's names: NICs first.
// Recreated VFs get their former names.
func createRDMA() error {
	number := 0
	for _, driver := range []string{"igb", "igbvf"} {
		netdevs, err := filepath.Glob("/sys/bus/pci/drivers/" + driver + "/0*/net/*")
		if err != nil {
			return err
		}
		for _, netdev := range netdevs {
			name := "mlx5_" + strconv.Itoa(number)
			number++
			if _, err := os.Stat("/sys/class/infiniband/" + name); err == nil {
				continue
			}
			if err := netlink.RdmaLinkAdd(name, "rxe", filepath.Base(netdev)); err != nil {
				return fmt.Errorf("add %s to %s: %w", name, netdev, err)
			}
		}
	}
	return nil
}
