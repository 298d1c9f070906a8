package rdma

import (
	"path/filepath"

	"github.com/vishvananda/netlink"

	"github.com/tandem-k8s/tandem/topology"
)

// DDPProfiles returns what tells the DDP package of an Intel NIC: fw.app.name of devlink, of the function
// itself or else of its PF (Documentation/networking/devlink/ice.rst), "" for none. It is in no sysfs file,
// so that for any root but /sys there is nothing to ask. The stock plugin also runs ddptool where its image
// has it; NICs that need that (i40e) are not known here.
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
