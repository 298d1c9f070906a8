// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"cmp"
	"io/fs"

	"github.com/tandem-k8s/tandem/plugins/rdma/sysfs"
)

// Host is where the files of the machine are.
type Host struct {
	Sys        fs.FS       // sysfs
	SRIOV      sysfs.SRIOV // tells of functions of SR-IOV; nil for the files of Sys
	Dev        fs.FS       // the device nodes; in answers they are always below /dev
	DevinfoDir string      // where Multus looks for device-info files
	CDI        *CDI        // nil: device nodes go through the kubelet
	PairsDir   string      // where the pairs files of containers are kept
}

// Functions tells of the host's functions of SR-IOV.
func (h Host) Functions() sysfs.SRIOV { return cmp.Or[sysfs.SRIOV](h.SRIOV, sysfs.Files{Sys: h.Sys}) }

// CDI says how device nodes get into containers through the Container Device Interface instead of through the
// kubelet. Names and files are those of the stock plugin (pkg/cdi/cdi.go), so that it and its operator clean
// up after this one and the other way round.
type CDI struct {
	Dirs []string // folders of CDI specs: cleaned up in all of them, written to in the last
	// name devices in the field CDIDevices of the kubelet's API; else in an annotation, as the stock plugin does
	Field bool
}

// has reports whether there is a device node, named without /dev.
func (h Host) has(node string) bool {
	_, err := fs.Stat(h.Dev, node)
	return err == nil
}
