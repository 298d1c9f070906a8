// SPDX-License-Identifier: Apache-2.0

// Package world is the node that simulated containers come to and leave again: its devices, which of them are
// free, and the kubelet.
//
// [State.Admit] admits as the kubelet does (package devicemanager), one resource after the other in random
// order; each [Question] goes to the way of choosing that is simulated. An answer that is short is filled
// up at random. Containers have one resource of each kind; CPUs and memory are not looked at.
package world

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/locality"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/coordination/preference"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Kind is one half of a request.
type Kind = devicemanager.Kind

// The two kinds of device.
const (
	GPU = devicemanager.GPU
	VF  = devicemanager.VF
)

// Kinds is for going through both halves.
var Kinds = devicemanager.Kinds

// Node is a machine to simulate: its devices, and where each of them is. It never changes and may be shared.
type Node struct {
	Name     string
	Tree     *topology.Tree
	Links    []topology.Link
	Devices  [2][]Device // by address; elsewhere a device is an index of its list
	On       [2][]int    // devices by switch
	Switches int         // devices on one switch have the same number below this
	PFs      int         // VFs of one PF have the same number below this
	NUMA     []int       // the numbers of the NUMA nodes, ascending; elsewhere a node is an index of this list
	Locality locality.Scores

	told     [2]*devicemanager.Node // the kubelet is told these NUMA nodes: all; those of GPUs alone
	switches preference.Switches    // by number
}

// Device is where a device is, as numbers to count by.
type Device struct {
	placement.Device
	Switch int // -1 where no switch is above it
	NUMA   int // index, -1 for unknown
	PF     int // of a VF
}

// New makes a node of a tree and the devices on it that containers can ask for. The order of the lists means
// nothing.
func New(
	name string, tree *topology.Tree, gpus, vfs []placement.Device, links []topology.Link,
) (*Node, error) {
	n := &Node{Name: name, Tree: tree, Links: links, NUMA: tree.NUMANodes()}
	if len(n.NUMA) > hints.MaxNodes {
		return nil, fmt.Errorf("simulate %s: %d NUMA nodes, the kubelet allows %d",
			name, len(n.NUMA), hints.MaxNodes)
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
	n.Locality = locality.New(tree, addresses)
	for _, kind := range Kinds {
		n.On[kind] = make([]int, n.Switches)
		for _, d := range n.Devices[kind] {
			if d.Switch >= 0 {
				n.On[kind][d.Switch]++
			}
		}
	}
	n.tell()
	return n, nil
}

// tell makes the devices ready for the kubelet. The resource of a kind has the kind's number.
func (n *Node) tell() {
	for exclude := range n.told {
		announced := make([]devicemanager.Announcement, len(Kinds))
		for _, kind := range Kinds {
			announced[kind].Kind = kind
			for _, d := range n.Devices[kind] {
				device := devicemanager.Device{Device: d.Device}
				if d.NUMA >= 0 && (kind == GPU || exclude == 0) {
					device.NUMA = topology.Node(d.NUMA)
				}
				announced[kind].Devices = append(announced[kind].Devices, device)
			}
		}
		n.told[exclude] = devicemanager.New(announced)
	}
	devices := n.told[0]
	n.switches = make(preference.Switches, n.Switches)
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

// locate numbers the switch of a device, those met first the lowest, and tells where it is plugged in.
func (n *Node) locate(d placement.Device, switches map[string]int) (Device, topology.Address, error) {
	function, ok := n.Tree.Device(d.Address)
	if !ok {
		return Device{}, d.Address, fmt.Errorf("simulate %s: no PCI function %s", n.Name, d.Address)
	}
	there := Device{Device: d, Switch: -1, NUMA: -1}
	if bridges := n.Tree.SharedBridges(d.Address); len(bridges) > 0 {
		there.Switch = number(switches, fmt.Sprint(bridges))
	}
	if node, known := function.NUMA.Number(); known {
		there.NUMA = slices.Index(n.NUMA, node)
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

// Count is how many devices of a kind the node has.
func (n *Node) Count(kind Kind) int { return len(n.Devices[kind]) }
