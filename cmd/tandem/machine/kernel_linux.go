// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"io/fs"
	"syscall"
	"time"

	"github.com/tandem-k8s/tandem/plugins/rdma"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// askKernel makes the finder ask the kernel of this node for the facts that no file of sysfs contains.
func askKernel(finder *pools.Finder, sysfsRoot string) {
	finder.Routes, finder.DDP = rdma.DefaultRoutes(sysfsRoot), rdma.DDPProfiles(sysfsRoot)
	finder.SRIOV = pools.SRIOVAt(sysfsRoot, finder.Sys)
}

// changeTime returns the time of the last change of a file, its name or its permissions.
func changeTime(info fs.FileInfo) time.Time {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return info.ModTime()
	}
	return time.Unix(stat.Ctim.Unix())
}
