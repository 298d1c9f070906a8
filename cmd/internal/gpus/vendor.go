package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/topology"
)

const (
	vendorAMD    = "amd"
	vendorNVIDIA = "nvidia"
	vendorAuto   = "auto"
)

// stockNVIDIA is what NVIDIA's own plugin is called. Under this name, by a link to it, tandem-gpu stands in
// for that plugin: manifests need no change, and NVIDIA's config-manager, which looks for a process of this
// name, finds it.
const stockNVIDIA = "nvidia-device-plugin"

// stockAMD is what AMD's own plugin is called.
const stockAMD = "k8s-device-plugin"

// inOrder puts first whose flags count where a name means two things, which --dev-root does.
func inOrder(program string, own, stock *pflag.FlagSet) []*pflag.FlagSet {
	if program == stockNVIDIA {
		return []*pflag.FlagSet{stock, own}
	}
	return []*pflag.FlagSet{own, stock}
}

// errNoDriver says that neither vendor's driver has a device.
var errNoDriver = errors.New("find GPUs: neither amdgpu nor nvidia drives a device here: " +
	"load the driver, or keep tandem-gpu off this node")

// detect decides whose GPUs are offered: by the --vendor flag, the program's name, or the driver that is
// bound to devices. It fails with errNoDriver where none is.
func detect(sys fs.FS, program, flag string) (string, error) {
	switch {
	case flag == vendorAMD || flag == vendorNVIDIA:
		return flag, nil
	case program == stockNVIDIA:
		return vendorNVIDIA, nil
	case program == stockAMD:
		return vendorAMD, nil
	}
	amd, nvidia := binds(sys, "amdgpu"), binds(sys, "nvidia")
	switch {
	case amd && nvidia:
		return "", fmt.Errorf("find GPUs: the drivers amdgpu and nvidia are both in use: say which GPUs to offer "+
			"with --vendor=%s or --vendor=%s", vendorAMD, vendorNVIDIA)
	case nvidia:
		return vendorNVIDIA, nil
	case amd:
		return vendorAMD, nil
	default:
		return "", errNoDriver
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
