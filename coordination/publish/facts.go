// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
)

// ErrUnread means that the devices of pods were never read. Then no device is known to be free.
var ErrUnread = errors.New("devices of pods are not known")

// Facts are the facts at one moment. Facts are immutable.
type Facts struct {
	Tree      *topology.Tree
	Resources []Resource // by name, ascending
	NUMANodes []NUMANode // by number, ascending
	Kubelet   model.Kubelet
	Enforced  bool // the annotations of pods are
	Alignment model.Alignment

	Devices   []Held    // containers in the kubelet's device checkpoint, and those that it has lost
	Gone      Gone      // pods in the checkpoint that no longer hold anything
	Exclusive Exclusive // among the pods that the kubelet lists
	// CPUs and Memory are those of a static CPU manager and memory manager, with their containers. A manager is
	// not read if its policy is another, and if its file could never be read.
	CPUs   kubelet.Reading[kubelet.CPUState]
	Memory kubelet.Reading[kubelet.MemoryState]

	// Unread is the reason for unknown devices of pods, an ErrUnread; nil if known.
	Unread error
	// Stale is the reason for assignments of an earlier time, or for a static manager that was never read; nil
	// if all are current.
	Stale error
}

// Resource is a resource that a plugin has announced.
type Resource struct {
	Name    string
	Kind    device.Kind
	Devices []device.Device // by address and ID
	Links   []topology.Link
}

// CPUStatic and MemoryStatic are the policies under which containers get exclusive CPUs and memory.
const (
	CPUStatic    = "static"
	MemoryStatic = "Static"
)

// NUMANode is a NUMA node of the machine.
type NUMANode struct {
	Number    int
	Distances []int             // to all nodes, in their order; nil if unknown
	CPUs      topology.CPUSet   // online CPUs
	Cores     []topology.CPUSet // cores with several CPUs, by their lowest CPU
	Socket    int               // of the CPUs; -1 if unknown
	Memory    uint64            // bytes; 0 if unknown
}

// memTotal is a line of a node's meminfo (node_read_meminfo in drivers/base/node.c).
var memTotal = regexp.MustCompile(`(?m)^Node \d+ MemTotal: +(\d+) kB$`)

// readNUMA reads the NUMA nodes of a tree (Documentation/ABI/stable/sysfs-devices-node). The nodes have what
// was read in spite of an error. A missing file is no error: a kernel without the file has no such fact.
func readNUMA(sys fs.FS, numbers []int) (nodes []NUMANode, err error) {
	cpus, err := topology.CPUs(sys)
	failed := []error{err}
	read := func(format string, args ...any) string {
		name := fmt.Sprintf(format, args...)
		content, err := fs.ReadFile(sys, name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = append(failed, fmt.Errorf("read NUMA nodes: %w", err))
		}
		return strings.TrimSpace(string(content))
	}
	for _, n := range model.ReadNUMANodes(sys, numbers) {
		node := NUMANode{Number: n.Number, Distances: n.Distances, CPUs: maps.Clone(cpus[n.Number])}
		memory := read("devices/system/node/node%d/meminfo", n.Number)
		if found := memTotal.FindStringSubmatch(memory); found != nil {
			kilobytes, _ := strconv.ParseUint(found[1], 10, 54) // digits
			node.Memory = kilobytes * 1024
		}
		node.Cores, node.Socket = readCores(read, node.CPUs)
		nodes = append(nodes, node)
	}
	return nodes, errors.Join(failed...)
}

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
