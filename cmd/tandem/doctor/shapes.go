// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/managers"
	"github.com/tandem-k8s/tandem/cmd/tandem/offer"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// shapes are the request shapes 1+1, 2+2 … on an empty node under policy restricted, by their number of
// pairs.
type shapes struct {
	emptyNode
	refused  []int    // for the devices alone
	fewer    []string // refused requests of GPUs with fewer VFs
	withCPUs []int    // refused for the CPUs next to the devices
	far      []int    // with pairs that are not on one switch
	near     map[int]int
}

// mostShapes limits n of the shapes n+n.
const mostShapes = 64

func (n Node) readShapes(k managers.Facts) (s shapes) {
	s.emptyNode, s.near = n.empty(k, hints.Restricted), map[int]int{}
	if len(n.GPUs) == 0 || len(n.VFs) == 0 {
		return s
	}
	s.fewer = s.fewerVFs()
	for pairs := 1; pairs <= min(len(n.GPUs), len(n.VFs), mostShapes); pairs++ {
		nodes, admitted := s.affinity(pairs, pairs, n.CPUs)
		_, fits := s.affinity(pairs, pairs, 0)
		switch {
		case !fits:
			s.refused = append(s.refused, pairs)
		case !admitted:
			s.withCPUs = append(s.withCPUs, pairs)
		}
		// For a shape that is not admitted there are no nodes: all count, as without the policy.
		if near := s.together(pairs, nodes); near < pairs {
			s.near[pairs] = near
			s.far = append(s.far, pairs)
		}
	}
	return s
}

// emptyNode is the node without containers, as the coordinator sees it.
type emptyNode struct {
	Node
	kubelet managers.Facts
	manager devicemanager.Kubelet
	view    *devicemanager.View
}

// empty returns the empty node under a policy, with the kubelet's other settings. Settings with which no
// kubelet starts count as mended: unknown options are not set, and the machine's NUMA nodes are allowed.
func (n Node) empty(k managers.Facts, policy hints.Policy) emptyNode {
	e := emptyNode{Node: n, kubelet: k, view: offer.View(n.Links, n.GPUs, n.VFs)}
	settings, nodes := k.Settings, model.ReadNUMANodes(n.Sys, n.Tree.NUMANodes())
	settings.Policy = string(policy)
	read, err := model.NewKubelet(settings)
	if err == nil {
		e.manager, err = read.TopologyManager(nodes)
	}
	if err != nil {
		e.manager = devicemanager.Kubelet{Rule: model.Documented(nodes)}
	}
	e.manager.Rule.MaxNodes = max(e.manager.Rule.MaxNodes, hints.MaxNodes, len(nodes))
	return e
}

// Affinity returns the NUMA nodes on which policy restricted puts a container on an empty node, and whether
// the policy admits the container at all.
func (n Node) Affinity(k managers.Facts, gpus, vfs int) ([]int, bool) {
	nodes, admitted := n.empty(k, hints.Restricted).affinity(gpus, vfs, n.CPUs)
	return nodes.Numbers(), admitted
}

func (e emptyNode) affinity(gpus, vfs, cpus int) (hints.Mask, bool) {
	requests := slices.DeleteFunc(offer.Requests(gpus, vfs), func(r devicemanager.Request) bool {
		return r.Count == 0 // the container does not name the resource
	})
	return e.manager.Rule.Nodes(append(e.view.Demands(requests), e.cpuDemand(cpus)))
}

// cpuDemand returns the demand for a number of exclusive CPUs, without influence if the kubelet aligns no
// CPUs.
func (e emptyNode) cpuDemand(count int) hints.Demand {
	reserved, err := e.kubelet.Reserved()
	if e.kubelet.CPUPolicy != managers.Static || err != nil {
		return hints.Demand{}
	}
	return hints.CPUs(count, e.kubelet.CPUs, e.kubelet.AllCPUs().Without(reserved))
}

// together returns how many of n pairs can be on one switch each, with devices of these NUMA nodes; without
// NUMA nodes, with all devices.
func (e emptyNode) together(n int, nodes hints.Mask) int {
	choice, err := placement.Choose(e.Tree, e.view.Placement(e.view.Expected(offer.Requests(n, n), nodes)))
	if err != nil {
		return 0
	}
	return placement.Together(choice.Pairs)
}

// fewerVFs returns the refused requests of GPUs with fewer VFs, as "5 to 8 GPUs with 1 to 4 VFs", without
// those of GPUs that are refused alone.
func (e emptyNode) fewerVFs() (requests []string) {
	var refused groups
	for gpus := 2; gpus <= min(len(e.GPUs), mostShapes); gpus++ {
		if _, admitted := e.affinity(gpus, 0, 0); !admitted {
			continue
		}
		var vfs []int
		for n := 1; n < gpus && n <= len(e.VFs); n++ {
			if _, admitted := e.affinity(gpus, n, 0); !admitted {
				vfs = append(vfs, n)
			}
		}
		_, equal := e.affinity(gpus, gpus, 0)
		switch {
		case len(vfs) == gpus-1 && !equal:
			refused.add("fewer VFs", gpus)
		case len(vfs) == 1 && vfs[0] == 1:
			refused.add("1 VF", gpus)
		case len(vfs) > 0:
			refused.add(ranges(numbersOf(vfs...))+" VFs", gpus)
		}
	}
	for _, vfs := range refused.texts {
		requests = append(requests, ranges(numbersOf(refused.of[vfs]...))+" GPUs with "+vfs)
	}
	return requests
}

// admittedCPUs says for shapes with which numbers of CPUs they are admitted.
func (e emptyNode) admittedCPUs(pairs []int) (lines []string) {
	all := len(e.kubelet.AllCPUs())
	var admitted groups
	for _, n := range pairs {
		fitting := topology.CPUSet{}
		for cpus := 1; cpus <= all; cpus++ {
			if _, fits := e.affinity(n, n, cpus); fits {
				fitting[cpus] = true
			}
		}
		admitted.add(fitting.String(), n)
	}
	for _, text := range admitted.texts {
		line := shapeList(admitted.of[text]) + ": admitted with " + text + " CPUs"
		if text == "" {
			line = shapeList(admitted.of[text]) + ": rejected with any whole number of CPUs"
		}
		lines = append(lines, line)
	}
	return lines
}

// groups are numbers with the same text, in the order of their first number.
type groups struct {
	texts []string
	of    map[string][]int
}

func (g *groups) add(text string, n int) {
	if g.of == nil {
		g.of = map[string][]int{}
	}
	if g.of[text] == nil {
		g.texts = append(g.texts, text)
	}
	g.of[text] = append(g.of[text], n)
}

// cpusPerNode counts the CPUs that containers can have.
func (e emptyNode) cpusPerNode() string {
	reserved, err := e.kubelet.Reserved()
	if err != nil {
		return "an unknown number"
	}
	var free []Device
	for number, set := range e.kubelet.CPUs {
		for range set.Without(reserved) {
			free = append(free, Device{NUMA: topology.Node(number)})
		}
	}
	return perNode(free)
}

// perNode is "4 on node 0, 4 on node 1".
func perNode(devices []Device) string {
	counts := map[int]int{}
	for _, d := range devices {
		number, known := d.NUMA.Number()
		if !known {
			number = -1
		}
		counts[number]++
	}
	var nodes []string
	for _, number := range slices.Sorted(maps.Keys(counts)) {
		place := fmt.Sprintf("on node %d", number)
		if number < 0 {
			place = "without a node"
		}
		nodes = append(nodes, fmt.Sprintf("%d %s", counts[number], place))
	}
	return strings.Join(nodes, ", ")
}

// shapeList is "1+1, 3+3 to 8+8".
func shapeList(pairs []int) string {
	return ranges(digits.ReplaceAllString(numbersOf(pairs...), "$0+$0"))
}

// numbersOf is "1,3-8".
func numbersOf(numbers ...int) string {
	set := topology.CPUSet{} // prints numbers as ranges
	for _, n := range numbers {
		set[n] = true
	}
	return set.String()
}

// ranges is "1, 3 to 8" for "1,3-8".
func ranges(numbers string) string {
	return strings.NewReplacer("-", " to ", ",", ", ").Replace(numbers)
}

var digits = regexp.MustCompile(`\d+`)
