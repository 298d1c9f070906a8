// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Kind is a half of a request.
type Kind = model.Kind

// The two kinds of device.
const (
	GPU = model.GPU
	VF  = model.VF
)

// Kinds is for going through both halves.
var Kinds = model.Kinds

// Node is a machine to simulate: its devices and their places. A Node is immutable and may be shared.
type Node struct {
	Name     string
	Tree     *topology.Tree
	Links    []topology.Link
	Devices  [2][]Device // by address; elsewhere a device is an index of its list
	Switches int         // the number of a switch is below Switches
	PFs      int         // the number of a PF is below PFs
	NUMA     []int       // the numbers of the NUMA nodes, ascending; elsewhere a node is an index of this list
	Locality machine.Scores

	told     [2]*devicemanager.Devices // NUMA nodes announced to the kubelet: all; those of GPUs alone
	switches devicemanager.Switches    // by number
}

// Device is a device with numbers for its place.
type Device struct {
	placement.Device
	Switch int // -1 without a switch
	NUMA   int // index, -1 for unknown
	PF     int // of a VF
}

// New returns the node of a tree and of the devices that containers can request, in any order.
func New(
	name string, tree *topology.Tree, gpus, vfs []placement.Device, links []topology.Link,
) (*Node, error) {
	n := &Node{Name: name, Tree: tree, Links: links, NUMA: tree.NUMANodes()}
	if len(n.NUMA) > model.MaxNodes {
		return nil, fmt.Errorf("simulate %s: %d NUMA nodes, the kubelet allows %d",
			name, len(n.NUMA), model.MaxNodes)
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
				there.PF = number(pfs, function)
			}
			n.Devices[kind] = append(n.Devices[kind], there)
		}
	}
	n.Switches, n.PFs = len(switches), len(pfs)
	addresses := make([]topology.Address, len(gpus))
	for i, d := range n.Devices[GPU] {
		addresses[i] = d.Address
	}
	n.Locality = machine.NewScores(tree, addresses)
	n.tell()
	return n, nil
}

// tell announces the devices to the kubelet. The index of a kind's resource is the kind.
func (n *Node) tell() {
	for exclude := range n.told {
		announced := make([]model.Resource, len(Kinds))
		for _, kind := range Kinds {
			announced[kind].Kind = kind
			for _, d := range n.Devices[kind] {
				device := model.Device{Device: d.Device}
				if d.NUMA >= 0 && (kind == GPU || exclude == 0) {
					device.NUMA = topology.Node(d.NUMA)
				}
				announced[kind].Devices = append(announced[kind].Devices, device)
			}
		}
		n.told[exclude] = devicemanager.NewDevices(announced)
	}
	devices := n.told[0]
	n.switches = make(devicemanager.Switches, n.Switches)
	for i := range n.switches {
		n.switches[i] = [2]devicemanager.Set{devices.NewSet(), devices.NewSet()}
	}
	for _, kind := range Kinds {
		for i, d := range n.Devices[kind] {
			if d.Switch >= 0 {
				n.switches[d.Switch][kind].Insert(devices.Resources[kind].First + i)
			}
		}
	}
}

func ordered(list []placement.Device) []placement.Device {
	sorted := slices.Clone(list)
	slices.SortFunc(sorted, func(a, b placement.Device) int {
		return cmp.Or(a.Address.Compare(b.Address), strings.Compare(a.ID, b.ID))
	})
	return sorted
}

// locate numbers the switch of a device in order of appearance, and returns the address of the device's PCI
// function.
func (n *Node) locate(d placement.Device, switches map[string]int) (Device, topology.Address, error) {
	function, ok := n.Tree.Device(d.Address)
	if !ok {
		return Device{}, d.Address, fmt.Errorf("simulate %s: no PCI function %s", n.Name, d.Address)
	}
	there := Device{Device: d, Switch: -1, NUMA: -1}
	if name := n.Tree.Switch(d.Address); topology.IsSwitch(name) { // a C2C complex has no bridges
		there.Switch = number(switches, fmt.Sprint(name, n.Tree.SharedBridges(d.Address)))
	}
	if node, known := function.NUMA.Number(); known {
		there.NUMA = slices.Index(n.NUMA, node)
	}
	return there, function.Function(), nil
}

// number returns the number of a key, and assigns the next number to a new key.
func number[K comparable](seen map[K]int, key K) int {
	i, ok := seen[key]
	if !ok {
		i = len(seen)
		seen[key] = i
	}
	return i
}

// Count returns the number of the node's devices of a kind.
func (n *Node) Count(kind Kind) int { return len(n.Devices[kind]) }

// Pairs returns the number of a container's GPUs that can have a VF of their own on their switch, of those
// with a PF of their own, and of those with a VF of their own on their NUMA node.
func (n *Node) Pairs(c Container) (pix, own, sameNode int) {
	type place struct{ gpus, vfs, pfs int }
	switches, numa := make([]place, n.Switches+1), make([]place, len(n.NUMA)+1) // the first for -1, unknown
	seen := map[int]bool{}
	for _, i := range c.Devices[GPU] {
		d := n.Devices[GPU][i]
		switches[d.Switch+1].gpus++
		numa[d.NUMA+1].gpus++
	}
	for _, i := range c.Devices[VF] {
		d := n.Devices[VF][i]
		switches[d.Switch+1].vfs++
		numa[d.NUMA+1].vfs++
		if !seen[d.PF] {
			seen[d.PF] = true
			switches[d.Switch+1].pfs++
		}
	}
	for _, p := range switches[1:] {
		pix += min(p.gpus, p.vfs)
		own += min(p.gpus, p.pfs)
	}
	for _, p := range numa {
		sameNode += min(p.gpus, p.vfs)
	}
	return pix, own, sameNode
}

// checkNumbers returns an error if a number of a simulation is too small, or needs more memory or time than a
// computer has.
func checkNumbers(seeds, arrivals, warmup int) error {
	for _, n := range []struct {
		name                string
		number, least, most int
	}{
		{"seeds", seeds, 1, 10_000}, {"arrivals", arrivals, 1, 1_000_000},
		{"warmup", warmup, 0, 1_000_000},
	} {
		if n.number < n.least || n.number > n.most {
			return fmt.Errorf("simulate: %s %d: want %d to %d", n.name, n.number, n.least, n.most)
		}
	}
	return nil
}
