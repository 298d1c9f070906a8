// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"maps"
	"slices"
	"strconv"

	"github.com/tandem-k8s/tandem/topology"
)

// readCores returns the CPUs of each core with several CPUs in a NUMA node, by their lowest CPU, and the
// socket of the CPUs (Documentation/ABI/stable/sysfs-devices-system-cpu), -1 if it is unknown or if there are
// several.
func readCores(
	read func(format string, args ...any) string, cpus topology.CPUSet,
) (cores []topology.CPUSet, socket int) {
	const folder = "devices/system/cpu/cpu%d/topology/"
	socket = -1
	for i, cpu := range slices.Sorted(maps.Keys(cpus)) {
		on, err := strconv.Atoi(read(folder+"physical_package_id", cpu))
		if err != nil || i > 0 && on != socket {
			on = -1
		}
		socket = on
		siblings, err := topology.ParseCPUSet(read(folder+"thread_siblings_list", cpu))
		if err == nil && len(siblings) > 1 && slices.Min(slices.Collect(maps.Keys(siblings))) == cpu {
			cores = append(cores, siblings)
		}
	}
	return cores, socket
}
