package coordination

import (
	"maps"
	"math/bits"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// Demand is one resource of a container as the Topology Manager looks at it.
type Demand struct {
	Count int                 // devices wanted
	All   []topology.NUMANode // of every device of the resource, allocated and unhealthy ones too
	Free  []topology.NUMANode // of those that can be had now, the Reused ones among them
	// Reused are of those that are taken over from an init container: the nodes must have them all.
	Reused []topology.NUMANode
}

// CPUDemand is a number of CPUs that a container is to have alone, as the Topology Manager looks at it under the static CPU policy
// (generateCPUTopologyHints in pkg/kubelet/cm/cpumanager/policy_static.go). Nodes are the CPUs of every NUMA node, free those that can
// be had now. The policy's options are not looked at, nor what an init container hands on.
func CPUDemand(count int, nodes map[int]topology.CPUSet, free topology.CPUSet) Demand {
	d := Demand{Count: count}
	for number, set := range nodes {
		for cpu := range set {
			d.All = append(d.All, topology.Node(number))
			if free[cpu] {
				d.Free = append(d.Free, topology.Node(number))
			}
		}
	}
	return d
}

// maxNodes is the number of NUMA nodes up to which all sets of nodes are tried. The kubelet refuses to start with more than 8
// unless it is told otherwise (max-allowable-numa-nodes).
const maxNodes = 8

// PredictNodes tells which NUMA nodes the kubelet's Topology Manager gives a container under policy restricted, or false
// where it refuses it. A resource of which no device has a NUMA node makes no demand; if none makes any, the nodes are nil.
//
// The rule is that of pkg/kubelet/cm/topologymanager (policy_restricted.go, policy.go) and
// devicemanager/topology_hints.go: there must be one set of nodes that has enough free devices of every resource and is,
// for every resource, as small as all its devices, free or not, allow; of several the one with the lowest numbers is taken. CPUs
// that a container has alone are a demand like devices. The memory manager can narrow it further; distances between nodes
// (prefer-closest-numa-nodes), which matter beyond two nodes, are not looked at.
func PredictNodes(demands []Demand) ([]int, bool) {
	numbers := nodeNumbers(demands)
	if len(numbers) == 0 {
		return nil, true
	}
	if len(numbers) > maxNodes {
		return nil, false
	}
	var counted []counts
	for _, d := range demands {
		if c := d.count(numbers); d.Count > 0 && c.known {
			counted = append(counted, c)
		}
	}
	var best uint
	for mask := uint(1); mask < 1<<len(numbers); mask++ {
		admitted := !slices.ContainsFunc(counted, func(c counts) bool { return !c.prefers(mask) })
		if admitted && (best == 0 || narrower(mask, best)) {
			best = mask
		}
	}
	return selected(numbers, best), best != 0
}

// narrower is bitmask.IsNarrowerThan of the kubelet: fewer nodes, then lower numbers.
func narrower(a, b uint) bool {
	if na, nb := bits.OnesCount(a), bits.OnesCount(b); na != nb {
		return na < nb
	}
	return a < b
}

// counts is a demand with its devices counted per NUMA node.
type counts struct {
	wanted    int
	width     int // the smallest number of nodes whose devices, free or not, are enough
	all, free []int
	reused    []int
	known     bool // at least one device has a node
}

func (d Demand) count(numbers []int) counts {
	c := counts{wanted: d.Count, all: perNode(d.All, numbers), free: perNode(d.Free, numbers), reused: perNode(d.Reused, numbers), width: len(numbers) + 1}
	c.known = sum(c.all, ^uint(0)) > 0
	for mask := uint(1); mask < 1<<len(numbers); mask++ {
		if n := bits.OnesCount(mask); n < c.width && sum(c.all, mask) >= d.Count {
			c.width = n
		}
	}
	return c
}

// prefers reports whether the resource's hint for these nodes is a preferred one.
func (c counts) prefers(mask uint) bool {
	return bits.OnesCount(mask) == c.width && sum(c.free, mask) >= c.wanted && sum(c.reused, mask) == sum(c.reused, ^uint(0))
}

func perNode(devices []topology.NUMANode, numbers []int) []int {
	count := make([]int, len(numbers))
	for _, device := range devices {
		if n, known := device.Number(); known {
			if i := slices.Index(numbers, n); i >= 0 {
				count[i]++
			}
		}
	}
	return count
}

func sum(perNode []int, mask uint) int {
	total := 0
	for i, n := range perNode {
		if mask>>i&1 == 1 {
			total += n
		}
	}
	return total
}

func selected(numbers []int, mask uint) []int {
	var nodes []int
	for i, number := range numbers {
		if mask>>i&1 == 1 {
			nodes = append(nodes, number)
		}
	}
	return nodes
}

// nodeNumbers lists the NUMA nodes that demands know of, ascending.
func nodeNumbers(demands []Demand) []int {
	known := map[int]bool{}
	for _, d := range demands {
		for _, device := range d.All {
			if n, ok := device.Number(); ok {
				known[n] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(known))
}
