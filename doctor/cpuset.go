package doctor

import (
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// cpus is a set of CPU numbers.
type cpus map[int]bool

// parseCPUs reads the kernel's list format, "0-3,8" (Documentation/admin-guide/cputopology.rst).
func parseCPUs(list string) (cpus, error) {
	set := cpus{}
	list = strings.TrimSpace(list)
	if list == "" {
		return set, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		low, err := strconv.Atoi(first)
		high := low
		if err == nil && isRange {
			high, err = strconv.Atoi(last)
		}
		const most = 1 << 16 // more CPUs than a kernel has
		if err != nil || low < 0 || high < low || high > most {
			return nil, fmt.Errorf("parse list of CPUs %q", list)
		}
		for n := low; n <= high; n++ {
			set[n] = true
		}
	}
	return set, nil
}

// String prints the list with ranges.
func (c cpus) String() string {
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

// without is the set less the members of another.
func (c cpus) without(other cpus) cpus {
	rest := cpus{}
	for n := range c {
		if !other[n] {
			rest[n] = true
		}
	}
	return rest
}

var nodeFolder = regexp.MustCompile(`^node(\d+)$`)

// nodeCPUs are the CPUs of every NUMA node; none where sysfs does not tell.
func nodeCPUs(sys fs.FS) map[int]cpus {
	nodes := map[int]cpus{}
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
		set, err := parseCPUs(string(content))
		if err != nil {
			return nil
		}
		nodes[number] = set
	}
	return nodes
}

// allCPUs is every CPU of the node.
func allCPUs(nodes map[int]cpus) cpus {
	all := cpus{}
	for _, set := range nodes {
		maps.Copy(all, set)
	}
	return all
}

// cores reads an amount of CPU as Kubernetes writes it, "500m" or "2", rounded up to whole CPUs.
func cores(amount any) int {
	text := strings.TrimSpace(fmt.Sprint(amount))
	milli := 1.0
	if number, ok := strings.CutSuffix(text, "m"); ok {
		text, milli = number, 1000
	}
	number, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0
	}
	return int(math.Ceil(number / milli))
}
