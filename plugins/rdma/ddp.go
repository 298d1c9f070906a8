// SPDX-License-Identifier: Apache-2.0

package rdma

import (
	"path/filepath"

	"github.com/vishvananda/netlink"

	"github.com/tandem-k8s/tandem/topology"
)

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
