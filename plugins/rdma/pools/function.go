package pools

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/tandem-k8s/tandem/plugins/rdma/sysfs"
	"github.com/tandem-k8s/tandem/topology"
)

// function is one PCI function, or a sub-function of it, with the values that selectors compare, "" for one
// it does not have.
type function struct {
	*topology.Device
	machine *machine
	aux     string // of a sub-function: the name of its auxiliary device, "mlx5_core.sf.4"
	inUse   bool   // by the node itself, or through its VFs
}

// id is the kubelet's device ID: what CNI plugins take for the device (Multus' deviceID).
func (f *function) id() string {
	if f.aux != "" {
		return f.aux
	}
	return f.Address.String()
}

// file names a file of the device.
func (f *function) file(elements ...string) string { return sysfs.File(f.Address, f.aux, elements...) }

func (f *function) vendor() string    { return fmt.Sprintf("%04x", f.Vendor) }
func (f *function) product() string   { return fmt.Sprintf("%04x", f.Product) }
func (f *function) driver() string    { return f.Driver }
func (f *function) address() string   { return f.Address.String() }
func (f *function) vdpaType() string  { return f.machine.vdpaType(f.Address) }
func (f *function) acpiIndex() string { return sysfs.Text(f.machine.sys, f.file("acpi_index")) }

// parent is the function that pfNames and rootDevices name: the PF of a VF, the function that a sub-function
// hangs on.
func (f *function) parent() (topology.Address, bool) {
	switch {
	case f.aux != "":
		return f.Address, true
	case f.IsVF():
		return f.PF, true
	default:
		return topology.Address{}, false
	}
}

func (f *function) pfAddress() string {
	if parent, ok := f.parent(); ok {
		return parent.String()
	}
	return ""
}

// pfName is the netdev of the parent.
func (f *function) pfName() string {
	if parent, ok := f.parent(); ok {
		return f.machine.pfName(parent)
	}
	return ""
}

// index is the number of a VF within its PF or of a sub-function, sfnum; -1 for anything else.
func (f *function) index() int {
	switch {
	case f.aux != "":
		return f.sfNumber()
	case f.IsVF():
		return f.machine.vfIndex(f.PF, f.Address)
	default:
		return -1
	}
}

// sfNumber is the number that the sub-function was created with (sfnum in
// Documentation/networking/devlink/mlx5.rst, drivers/net/ethernet/mellanox/mlx5/core/sf/dev/dev.c); -1 for an
// auxiliary device that has none.
func (f *function) sfNumber() int {
	number, err := strconv.Atoi(sysfs.Text(f.machine.sys, f.file("sfnum")))
	if err != nil {
		return -1
	}
	return number
}

// auxiliary is the name of an auxiliary device: driver, type and number
// (Documentation/driver-api/auxiliary_bus.rst).
var auxiliary = regexp.MustCompile(`^[^.]+\.([^.]+)\.\d+$`)

// auxType is the kind of an auxiliary device, "sf".
func (f *function) auxType() string {
	if match := auxiliary.FindStringSubmatch(f.aux); match != nil {
		return match[1]
	}
	return ""
}

// subfunctions are the auxiliary network devices of a network function. As in the stock plugin
// (NewGenNetDevice in pkg/devices/gen_net.go) one without a number, or of a function without a netdev, is
// none.
func (f *function) subfunctions() []*function {
	var found []*function
	for _, name := range sysfs.Names(f.machine.sys, f.file()) {
		if !auxiliary.MatchString(name) {
			continue
		}
		sf := &function{Device: f.Device, machine: f.machine, aux: name}
		if sf.sfNumber() >= 0 && sf.pfName() != "" {
			found = append(found, sf)
		}
	}
	return found
}
