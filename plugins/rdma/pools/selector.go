// SPDX-License-Identifier: Apache-2.0

package pools

// DeviceType is a kind of devices in a resource.
type DeviceType string

// The device types of the stock plugin.
const (
	NetDevice    DeviceType = "netDevice"    // network functions (PCI class 02), the default
	Accelerator  DeviceType = "accelerator"  // processing accelerators (PCI class 12)
	AuxNetDevice DeviceType = "auxNetDevice" // sub-functions of network functions
)

// SharedHCA is the device type of configList: an HCA, that is a network function with an RDMA device, that
// several containers use at a time. resourceList cannot use this type.
const SharedHCA DeviceType = "sharedHCA"

// devices returns the device type in words.
func (t DeviceType) devices() string {
	if t == AuxNetDevice {
		return "sub-function"
	}
	return "VF with a driver"
}

// Selector selects the devices that fulfil all of its conditions. Any value of a list fulfils the condition;
// an empty list is no condition. The keys are those of pkg/types/types.go of the stock plugin; each device
// type uses some and ignores the others.
type Selector struct {
	functionSelector
	addressSelector
	networkSelector
	vfSelector
	sfSelector

	ifNames []string // the function's own first netdev; of SharedHCA
}

// functionSelector has the conditions for any device; for a sub-function they apply to its parent. Values are
// compared in the format of sysfs: lower case, four digits, without 0x.
type functionSelector struct {
	Vendors []string `json:"vendors"`
	Devices []string `json:"devices"`
	Drivers []string `json:"drivers"`
}

// addressSelector is for PCI functions.
type addressSelector struct {
	PCIAddresses []string `json:"pciAddresses"`
}

// networkSelector is for netDevice and auxNetDevice.
type networkSelector struct {
	// netdev of the PF, with the indexes of VFs or the numbers of sub-functions
	PFNames      []vfItem `json:"pfNames"`
	RootDevices  []vfItem `json:"rootDevices"`  // address of the PF, likewise
	LinkTypes    []string `json:"linkTypes"`    // ether, infiniband
	IsRDMA       bool     `json:"isRdma"`       // devices with an RDMA device, which the container gets too
	NeedVhostNet bool     `json:"needVhostNet"` // the container gets /dev/vhost-net and /dev/net/tun too
}

// vfSelector is for netDevice.
type vfSelector struct {
	ACPIIndexes []string `json:"acpiIndexes"` // acpi_index of the function
	DDPProfiles []string `json:"ddpProfiles"` // of Intel NICs: the name of the loaded DDP package
	PKeys       []string `json:"pKeys"`       // partition key 0 of port 1, InfiniBand only
	// functions with a vDPA device for virtio or vhost, which the container gets too
	VDPAType string `json:"vdpaType"`
}

// sfSelector is for auxNetDevice.
type sfSelector struct {
	AuxTypes []string `json:"auxTypes"` // sf
}

// keys returns the part of the selector for a device type, as a target for JSON.
func (s *Selector) keys(t DeviceType) any {
	switch t {
	case Accelerator:
		return &struct {
			*functionSelector
			*addressSelector
		}{&s.functionSelector, &s.addressSelector}
	case AuxNetDevice:
		return &struct {
			*functionSelector
			*networkSelector
			*sfSelector
		}{&s.functionSelector, &s.networkSelector, &s.sfSelector}
	default:
		return &struct {
			*functionSelector
			*addressSelector
			*networkSelector
			*vfSelector
		}{&s.functionSelector, &s.addressSelector, &s.networkSelector, &s.vfSelector}
	}
}
