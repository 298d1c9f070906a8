// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"errors"
	"fmt"
	"path/filepath"
	"syscall"

	"github.com/vishvananda/netlink"

	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

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
	for _, d := range sharedHCAs(all) {
		netdev := downNetdev(v.finder, d)
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

// sharedHCAs returns the present devices of pools with shared HCAs, each once.
func sharedHCAs(all []pools.Pool) (devices []pools.Device) {
	seen := map[string]bool{}
	for _, pool := range all {
		for _, d := range pool.Devices {
			if pool.Resource.DeviceType == pools.SharedHCA && !d.Missing() && !seen[d.File()] {
				seen[d.File()] = true
				devices = append(devices, d)
			}
		}
	}
	return devices
}

// downNetdev returns the first netdev of a device, "" if the netdev is up or there is none.
func downNetdev(finder pools.Finder, d pools.Device) string {
	netdevs := finder.Functions().Netdevs(d.Address, d.Aux)
	if len(netdevs) == 0 {
		return ""
	}
	state := pools.NetdevFile(finder.Sys, d.Address, d.Aux, netdevs[0], "operstate")
	if pools.ReadText(finder.Sys, state) == "up" {
		return ""
	}
	return netdevs[0]
}
