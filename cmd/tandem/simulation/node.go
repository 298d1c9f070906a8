package simulation

import (
	"fmt"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Kind is one half of a request.
type Kind int

// The two kinds of device.
const (
	GPU Kind = iota
	VF
)

// String names the kind as people write it.
func (k Kind) String() string { return [...]string{"GPU", "VF"}[k] }

func (k Kind) other() Kind { return 1 - k }

// kinds is for going through both halves.
var kinds = [...]Kind{GPU, VF}

// Node is a machine to simulate: its devices, and where each of them is. It never changes and may be shared.
type Node struct {
	name     string
	tree     *topology.Tree
	links    []topology.Link
	devices  [2][]device
	on       [2][]int // devices by switch
	switches int      // devices on one switch have the same number below this
	pfs      int      // VFs of one PF have the same number below this
	numa     []int    // the numbers of the NUMA nodes, ascending; elsewhere a node is an index of this list
	near     [][]int
}

// device is where a device is, as numbers to count by.
type device struct {
	placement.Device
	onSwitch int // -1 where no switch is above it
	numa     int // index, -1 for unknown
	pf       int // of a VF
}

// NewNode makes a node of a tree and the devices on it that containers can ask for. The order of the lists means nothing.
func NewNode(name string, tree *topology.Tree, gpus, vfs []placement.Device, links []topology.Link) (*Node, error) {
	n := &Node{name: name, tree: tree, links: links, numa: tree.NUMANodes()}
	if len(n.numa) > hints.MaxNodes {
		return nil, fmt.Errorf("simulate %s: %d NUMA nodes, the kubelet allows %d", name, len(n.numa), hints.MaxNodes)
	}
	if len(gpus) == 0 {
		return nil, fmt.Errorf("simulate %s: no GPU", name)
	}
	switches, pfs := map[string]int{}, map[topology.Address]int{}
	for kind, list := range [...][]placement.Device{gpus, vfs} {
		for _, d := range ordered(list) {
			there, function, err := n.locate(d, switches)
			if err != nil {
				return nil, err
			}
			if Kind(kind) == VF {
				there.pf = number(pfs, function)
			}
			n.devices[kind] = append(n.devices[kind], there)
		}
	}
	n.switches, n.pfs = len(switches), len(pfs)
	n.near = n.scores()
	for _, kind := range kinds {
		n.on[kind] = make([]int, n.switches)
		for _, d := range n.devices[kind] {
			if d.onSwitch >= 0 {
				n.on[kind][d.onSwitch]++
			}
		}
	}
	return n, nil
}

func ordered(list []placement.Device) []placement.Device {
	sorted := slices.Clone(list)
	slices.SortFunc(sorted, func(a, b placement.Device) int {
		if c := a.Address.Compare(b.Address); c != 0 {
			return c
		}
		return slices.Compare([]byte(a.ID), []byte(b.ID))
	})
	return sorted
}

// locate numbers the switch of a device, those met first the lowest, and tells where it is plugged in.
func (n *Node) locate(d placement.Device, switches map[string]int) (device, topology.Address, error) {
	function, ok := n.tree.Device(d.Address)
	if !ok {
		return device{}, d.Address, fmt.Errorf("simulate %s: no PCI function %s", n.name, d.Address)
	}
	there := device{Device: d, onSwitch: -1, numa: -1}
	if bridges := n.tree.SharedBridges(d.Address); len(bridges) > 0 {
		there.onSwitch = number(switches, fmt.Sprint(bridges))
	}
	if node, known := function.NUMA.Number(); known {
		there.numa = slices.Index(n.numa, node)
	}
	return there, function.Function(), nil
}

// number gives each key the next number when it is first seen.
func number[K comparable](seen map[K]int, key K) int {
	i, ok := seen[key]
	if !ok {
		i = len(seen)
		seen[key] = i
	}
	return i
}

// Name is the name of the node.
func (n *Node) Name() string { return n.name }

// Count is how many devices of a kind the node has.
func (n *Node) Count(kind Kind) int { return len(n.devices[kind]) }

// Device is the i-th device of a kind, in the order of the addresses.
func (n *Node) Device(kind Kind, i int) placement.Device { return n.devices[kind][i].Device }
