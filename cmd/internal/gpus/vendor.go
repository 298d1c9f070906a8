package gpus

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/topology"
)

// Vendors of GPUs, as --vendor spells them.
const (
	VendorAMD    = "amd"
	VendorNVIDIA = "nvidia"
	VendorNone   = "none" // another driver has the GPUs; of the DRA driver alone
	vendorAuto   = "auto"
)

// RegisterVendor adds the flag that says whose GPUs are offered.
func RegisterVendor(set *pflag.FlagSet, vendor *string) {
	set.Var(newWord(vendor, vendorAuto, VendorAMD, VendorNVIDIA, vendorAuto), "vendor",
		"whose GPUs are offered: amd, nvidia, or auto for those whose driver is in use")
}

// RegisterVendorOrNone adds the same flag for a daemon that has VFs too.
func RegisterVendorOrNone(set *pflag.FlagSet, vendor *string) {
	set.Var(newWord(vendor, vendorAuto, VendorAMD, VendorNVIDIA, VendorNone, vendorAuto), "vendor",
		"whose GPUs are offered: amd, nvidia, auto for those whose driver is in use, or none where another driver "+
			"has them")
}

// StockNVIDIA is what NVIDIA's own plugin is called. Under this name, by a link to it, tandem-gpu stands in
// for that plugin: manifests need no change, and NVIDIA's config-manager, which looks for a process of this
// name, finds it.
const StockNVIDIA = "nvidia-device-plugin"

// StockAMD is what AMD's own plugin is called.
const StockAMD = "k8s-device-plugin"

// ErrNoDriver says that neither vendor's driver has a device.
var ErrNoDriver = errors.New("find GPUs: neither amdgpu nor nvidia drives a device here: " +
	"load the driver, or keep this daemon off the node")

// Detect decides whose GPUs are offered: by the --vendor flag, the program's name, or the driver that is
// bound to devices. It fails with ErrNoDriver where none is.
func Detect(sys fs.FS, program, flag string) (string, error) {
	switch {
	case flag == VendorAMD || flag == VendorNVIDIA:
		return flag, nil
	case program == StockNVIDIA:
		return VendorNVIDIA, nil
	case program == StockAMD:
		return VendorAMD, nil
	}
	amd, nvidia := binds(sys, "amdgpu"), binds(sys, "nvidia")
	switch {
	case amd && nvidia:
		return "", fmt.Errorf("find GPUs: the drivers amdgpu and nvidia are both in use: say which GPUs to offer "+
			"with --vendor=%s or --vendor=%s", VendorAMD, VendorNVIDIA)
	case nvidia:
		return VendorNVIDIA, nil
	case amd:
		return VendorAMD, nil
	default:
		return "", ErrNoDriver
	}
}

// binds reports whether a PCI driver has a device, and all that it will have.
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
