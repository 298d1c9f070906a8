// SPDX-License-Identifier: Apache-2.0

package pools

// DeviceType is a kind of device that a resource can be made of.
type DeviceType string

// The device types of the stock plugin.
const (
	NetDevice    DeviceType = "netDevice"    // network functions (PCI class 02), the default
	Accelerator  DeviceType = "accelerator"  // processing accelerators (PCI class 12)
	AuxNetDevice DeviceType = "auxNetDevice" // sub-functions of network functions
)

// SharedHCA is the device type of what configList offers: an HCA, a network function with an RDMA device,
// that several containers use at a time. No resource of resourceList can name it.
const SharedHCA DeviceType = "sharedHCA"

// devices is the device type in words.
func (t DeviceType) devices() string {
	if t == AuxNetDevice {
		return "sub-function"
	}
	return "VF with a driver"
}

// Selector says which devices belong to a resource: those that meet every condition it has. A list is a
// condition that is met by any of its values; an empty one is none. The keys are those of pkg/types/types.go
// of the stock plugin; which of them count depends on the device type, the others are ignored.
type Selector struct {
	functionSelector
	addressSelector
	networkSelector
	vfSelector
	sfSelector

	ifNames []string // the function's own first netdev; of SharedHCA
}

// functionSelector has the conditions for any device; those of a sub-function are about the function it hangs
// on. Values are compared as sysfs prints them: lower case, four digits, without 0x.
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

// keys is the part of the selector that counts for a device type, to be read from JSON.
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
