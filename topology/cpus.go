// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// CPUSet is a set of CPU numbers.
type CPUSet map[int]bool

// ParseCPUSet reads the kernel's list format, "0-3,8" (Documentation/admin-guide/cputopology.rst). Other text
// is an error.
func ParseCPUSet(list string) (CPUSet, error) {
	set := CPUSet{}
	if list = strings.TrimSpace(list); list == "" {
		return set, nil
	}
	const most = 1 << 16 // more CPUs than a kernel has
	numbers, ok := parseList(list, most)
	if !ok {
		return nil, fmt.Errorf("parse list of CPUs %q", list)
	}
	for _, n := range numbers {
		set[n] = true
	}
	return set, nil
}

// String returns the list with ranges.
func (c CPUSet) String() string {
	numbers := slices.Sorted(maps.Keys(c))
	var parts []string
	for i := 0; i < len(numbers); {
		k := i
		for k+1 < len(numbers) && numbers[k+1] == numbers[k]+1 {
			k++
		}
		part := strconv.Itoa(numbers[i])
		if k > i {
			part += "-" + strconv.Itoa(numbers[k])
		}
		parts = append(parts, part)
		i = k + 1
	}
	return strings.Join(parts, ",")
}

// Without returns the set without the members of another set.
func (c CPUSet) Without(other CPUSet) CPUSet {
	rest := CPUSet{}
	for n := range c {
		if !other[n] {
			rest[n] = true
		}
	}
	return rest
}

var nodeFolder = regexp.MustCompile(`^node(\d+)$`)

// NodesWithCPUs returns the numbers of the NUMA nodes with CPUs, ascending.
func NodesWithCPUs(cpus map[int]CPUSet) (nodes []int) {
	for number, of := range cpus {
		if len(of) > 0 {
			nodes = append(nodes, number)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// CPUs returns the online CPUs of every NUMA node by number, or nil if sysfs has no list
// (Documentation/ABI/stable/sysfs-devices-node).
func CPUs(sys fs.FS) map[int]CPUSet {
	nodes := map[int]CPUSet{}
	entries, err := fs.ReadDir(sys, "devices/system/node")
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		m := nodeFolder.FindStringSubmatch(entry.Name())
		if m == nil {
			continue
		}
		number, _ := strconv.Atoi(m[1]) // digits only
		content, err := fs.ReadFile(sys, path.Join("devices/system/node", entry.Name(), "cpulist"))
		if err != nil {
			return nil
		}
		set, err := ParseCPUSet(string(content))
		if err != nil {
			return nil
		}
		nodes[number] = set
	}
	return nodes
}
