// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"cmp"
	"io/fs"

	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/plugins/rdma/sysfs"
)

// Host has the paths of the machine's files.
type Host struct {
	Sys        fs.FS       // sysfs
	SRIOV      sysfs.SRIOV // SR-IOV facts; nil for the files of Sys
	Dev        fs.FS       // device nodes; in answers always below /dev
	Disk       system.Disk // for device-info files and pairs files
	DevinfoDir string      // folder of Multus for device-info files
	CDI        *CDI        // nil: device nodes go through the kubelet
	PairsDir   string      // folder for the pairs files of containers
}

// Functions returns the reader of the host's SR-IOV facts.
func (h Host) Functions() sysfs.SRIOV { return cmp.Or[sysfs.SRIOV](h.SRIOV, sysfs.Files{Sys: h.Sys}) }

// CDI configures device nodes through the Container Device Interface instead of the kubelet. Names and files
// are those of the stock plugin (pkg/cdi/cdi.go), so that either plugin, and the operator, can clean up after
// the other.
type CDI struct {
	Disk system.Disk
	Dirs []string // folders of CDI specs: cleaned up in all of them, written to in the last
	// pass devices in the field CDIDevices of the kubelet's API, instead of an annotation as in the stock plugin
	Field bool
}
