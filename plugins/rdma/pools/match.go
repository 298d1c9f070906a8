package pools

import "slices"

// selects reports whether a device meets every condition. The order is that of the stock plugin
// (GetFilteredDevices in pkg/netdevice/netDeviceProvider.go), the cheap ones first.
func (s *Selector) selects(f *function) bool {
	return allows(s.Vendors, f.vendor) &&
		allows(s.Devices, f.product) &&
		allows(s.Drivers, f.driver) &&
		allows(s.PCIAddresses, f.address) &&
		allows(s.ACPIIndexes, f.acpiIndex) &&
		allows(s.AuxTypes, f.auxType) &&
		allowsVF(s.PFNames, f.pfName, f) &&
		allowsVF(s.RootDevices, f.pfAddress, f) &&
		allows(s.LinkTypes, f.linkType) &&
		allows(s.DDPProfiles, f.ddpProfile) &&
		allows(s.PKeys, f.pKey) &&
		(!s.IsRDMA || f.isRDMA()) &&
		(s.VDPAType == "" || f.vdpaType() == s.VDPAType)
}

// allows reports whether a list has no condition, or the value of a function, which is read only if need be.
// A function without a value meets no condition.
func allows(list []string, value func() string) bool {
	if len(list) == 0 {
		return true
	}
	v := value()
	return v != "" && slices.Contains(list, v)
}

func allowsVF(items []vfItem, pf func() string, f *function) bool {
	if len(items) == 0 {
		return true
	}
	name := pf()
	if name == "" {
		return false
	}
	item, ok := naming(items, name)
	return ok && (item.all || item.holds(f.index()))
}
