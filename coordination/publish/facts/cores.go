// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// readCores returns the CPUs of each core with several CPUs in a NUMA node, by their lowest CPU, and the
// socket of the CPUs (Documentation/ABI/stable/sysfs-devices-system-cpu), -1 if it is unknown or if there are
// several.
func readCores(sys fs.FS, cpus topology.CPUSet) (cores []topology.CPUSet, socket int) {
	socket = -1
	for i, cpu := range slices.Sorted(maps.Keys(cpus)) {
		read := func(name string) string {
			content, _ := fs.ReadFile(sys, fmt.Sprintf("devices/system/cpu/cpu%d/topology/%s", cpu, name))
			return strings.TrimSpace(string(content))
		}
		on, err := strconv.Atoi(read("physical_package_id"))
		if err != nil || i > 0 && on != socket {
			on = -1
		}
		socket = on
		siblings, err := topology.ParseCPUSet(read("thread_siblings_list"))
		if err == nil && len(siblings) > 1 && slices.Min(slices.Collect(maps.Keys(siblings))) == cpu {
			cores = append(cores, siblings)
		}
	}
	return cores, socket
}
