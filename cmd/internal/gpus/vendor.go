// SPDX-License-Identifier: Apache-2.0

package gpus

import (
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/internal/plainflag"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/topology"
)

// Values of --vendor other than the vendors' names.
const (
	VendorNone = "none" // another driver has the GPUs; of the DRA driver alone
	vendorAuto = "auto"
)

// RegisterVendor adds --vendor, the vendor of the offered GPUs.
func RegisterVendor(set *pflag.FlagSet, vendor *string) {
	plainflag.Choice(set, vendor, "vendor", vendorAuto,
		"vendor of the GPUs to offer: "+listed()+", or auto for the vendor whose driver is in use",
		append(gpu.Names(), vendorAuto)...)
	plainflag.GPU.Put(set, "vendor")
}

// RegisterVendorOrNone adds --vendor for a daemon that also offers VFs and can run without GPUs.
func RegisterVendorOrNone(set *pflag.FlagSet, vendor *string) {
	plainflag.Choice(set, vendor, "vendor", vendorAuto,
		"vendor of the GPUs to publish: "+listed()+", auto for the vendor whose driver is in use, or none if "+
			"another DRA driver manages the GPUs", append(gpu.Names(), VendorNone, vendorAuto)...)
	plainflag.GPU.Put(set, "vendor")
}

// ErrNoDriver means that no vendor's driver has a device.
var ErrNoDriver = gpu.NoDriver("find GPUs: neither " + strings.ReplaceAll(gpu.Drivers(), " or ", " nor ") +
	" drives a device here: load the driver, or keep this daemon off the node")

// listed returns the vendors' names for people.
func listed() string { return strings.Join(gpu.Names(), ", ") }

// Detect returns the vendor of the offered GPUs, from the --vendor flag, the program's name, or the driver
// that is bound to devices. Without a driver, the error is ErrNoDriver.
func Detect(sys fs.FS, program, flag string) (string, error) {
	for _, m := range gpu.Makers {
		if flag == m.Vendor {
			return flag, nil
		}
	}
	var bound []gpu.Maker
	for _, m := range gpu.Makers {
		if program == m.Program {
			return m.Vendor, nil
		}
		if binds(sys, m.Driver) {
			bound = append(bound, m)
		}
	}
	switch len(bound) {
	case 0:
		return "", ErrNoDriver
	case 1:
		return bound[0].Vendor, nil
	default:
		return "", ambiguous(bound)
	}
}

// ambiguous returns the error for a node on which the drivers of several vendors are in use.
func ambiguous(bound []gpu.Maker) error {
	var drivers, flags []string
	for _, m := range bound {
		drivers = append(drivers, m.Driver)
		flags = append(flags, "--vendor="+m.Vendor)
	}
	return fmt.Errorf("find GPUs: the drivers %s are in use: say which GPUs to offer with %s",
		strings.Join(drivers, " and "), strings.Join(flags, " or "))
}

// binds reports whether a PCI driver has bound a device and has finished loading.
func binds(sys fs.FS, driver string) bool {
	if gpu.Loading(sys, driver) {
		return false
	}
	entries, err := fs.ReadDir(sys, "bus/pci/drivers/"+driver)
	for _, entry := range entries {
		if _, notAddress := topology.ParseAddress(entry.Name()); notAddress == nil && err == nil {
			return true
		}
	}
	return false
}
