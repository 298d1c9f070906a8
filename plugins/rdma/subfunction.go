package rdma

import (
	"regexp"
	"strconv"
)

// auxiliary is the name of an auxiliary device: driver, type and number (Documentation/driver-api/auxiliary_bus.rst).
var auxiliary = regexp.MustCompile(`^[^.]+\.([^.]+)\.\d+$`)

// subfunctions are the auxiliary network devices of a network function. As in the stock plugin (NewGenNetDevice in
// pkg/devices/gen_net.go) one without a number, or of a function without a netdev, is none.
func (f *function) subfunctions() []*function {
	var found []*function
	for _, name := range readNames(f.machine.sys, f.file()) {
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

// auxType is the kind of an auxiliary device, "sf".
func (f *function) auxType() string {
	if match := auxiliary.FindStringSubmatch(f.aux); match != nil {
		return match[1]
	}
	return ""
}

// sfNumber is the number that the sub-function was created with (sfnum in Documentation/networking/devlink/mlx5.rst,
// drivers/net/ethernet/mellanox/mlx5/core/sf/dev/dev.c); -1 for an auxiliary device that has none.
func (f *function) sfNumber() int {
	number, err := strconv.Atoi(readText(f.machine.sys, f.file("sfnum")))
	if err != nil {
		return -1
	}
	return number
}
