// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// NUMANode is a NUMA node number of the kernel, or unknown. The zero value is unknown and therefore differs
// from node 0.
type NUMANode struct {
	number int
	known  bool
}

// Node returns the NUMA node with a number. A negative number, which means "none" in the kernel, gives an
// unknown node.
func Node(number int) NUMANode { return NUMANode{number: max(number, 0), known: number >= 0} }

// Number returns the node's number, 0 or more, and whether it is known.
func (n NUMANode) Number() (number int, known bool) { return n.number, n.known }

// Lower returns the lower of two nodes, or the known one.
func (n NUMANode) Lower(m NUMANode) NUMANode {
	if m.known && (!n.known || m.number < n.number) {
		return m
	}
	return n
}

// String returns the number, or -1 for an unknown node, as in sysfs.
func (n NUMANode) String() string {
	if !n.known {
		return "-1"
	}
	return strconv.Itoa(n.number)
}

// ParseNUMANode reads the content of a file numa_node without the newline: a number, -1 for unknown.
func ParseNUMANode(text string) (NUMANode, error) {
	number, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return NUMANode{}, err
	}
	return Node(int(number)), nil
}

// Numbers returns the node's number, or nil for an unknown node. For the kubelet nil means "no preference";
// under a strict policy node -1 would make the kubelet reject every pod.
func (n NUMANode) Numbers() []int {
	if !n.known {
		return nil
	}
	return []int{n.number}
}

// MarshalJSON returns the number, or null for an unknown node. The tag omitzero omits an unknown node.
func (n NUMANode) MarshalJSON() ([]byte, error) {
	if !n.known {
		return []byte("null"), nil
	}
	return json.Marshal(n.number)
}

// UnmarshalJSON reads a number or null.
func (n *NUMANode) UnmarshalJSON(text []byte) error {
	var number *int
	if err := json.Unmarshal(text, &number); err != nil {
		return err
	}
	*n = NUMANode{}
	if number != nil {
		*n = Node(*number)
	}
	return nil
}

// readNodes reads the list of online NUMA nodes, "0-1" or "0,8"; nil if the kernel has no NUMA.
func readNodes(sys fs.FS) ([]int, error) {
	const file = "devices/system/node/online"
	content, err := fs.ReadFile(sys, file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read NUMA nodes: %w", err)
	}
	text := strings.TrimSpace(string(content))
	const most = 1<<10 - 1 // the kernel allows 1 << 10 (CONFIG_NODES_SHIFT)
	nodes, ok := parseList(text, most)
	if !ok {
		return nil, fmt.Errorf("read %s: parse list %q", file, text)
	}
	return nodes, nil
}

// parseList reads numbers up to most in the kernel's list format, "0-3,8"
// (Documentation/admin-guide/cputopology.rst), each once and in ascending order, and reports whether the
// format is correct. The time is that of sorting the ranges, and of the numbers in them.
func parseList(s string, most int) (list []int, ok bool) {
	begun := map[int]int{} // by number: ranges that begin there, less those that have ended before
	for part := range strings.SplitSeq(s, ",") {
		first, last, isRange := strings.Cut(part, "-")
		low, err := strconv.Atoi(first)
		high := low
		if err == nil && isRange {
			high, err = strconv.Atoi(last)
		}
		if err != nil || low < 0 || high < low || high > most {
			return nil, false
		}
		begun[low]++
		begun[high+1]--
	}
	bounds := slices.Sorted(maps.Keys(begun))
	ranges := 0
	for i, bound := range bounds {
		ranges += begun[bound]
		if ranges == 0 {
			continue
		}
		for n := bound; n < bounds[i+1]; n++ { // behind the last bound no range goes on
			list = append(list, n)
		}
	}
	return list, true
}

// CPUSet is a set of CPU numbers.
type CPUSet map[int]bool

// ParseCPUSet reads the kernel's list format, "0-3,8" (Documentation/admin-guide/cputopology.rst). Other text
// is an error.
func ParseCPUSet(list string) (CPUSet, error) {
	set := CPUSet{}
	list = strings.TrimSpace(list)
	if list == "" {
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
func CPUs(sys fs.FS) (map[int]CPUSet, error) {
	nodes, err := readCPUs(sys)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read CPUs of NUMA nodes: %w", err)
	}
	return nodes, nil
}

func readCPUs(sys fs.FS) (map[int]CPUSet, error) {
	nodes := map[int]CPUSet{}
	entries, err := fs.ReadDir(sys, "devices/system/node")
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		m := nodeFolder.FindStringSubmatch(entry.Name())
		if m == nil {
			continue
		}
		number, _ := strconv.Atoi(m[1]) // digits only
		file := path.Join("devices/system/node", entry.Name(), "cpulist")
		content, err := fs.ReadFile(sys, file)
		if err != nil {
			return nil, err
		}
		set, err := ParseCPUSet(string(content))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		nodes[number] = set
	}
	return nodes, nil
}
