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
	"github.com/tandem-k8s/tandem/coordination/preference"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// shapes are the request shapes 1+1, 2+2 … on an empty node, by their number of pairs.
type shapes struct {
	emptyNode
	refused  []int // by policy restricted, for the devices alone
	withCPUs []int // refused for the CPUs next to the devices
	far      []int // with pairs that are not on one switch
	near     map[int]int
}

// mostShapes limits n of the shapes n+n.
const mostShapes = 64

func (n Node) readShapes(k managers.Facts) (s shapes) {
	if len(n.GPUs) == 0 || len(n.VFs) == 0 {
		return s
	}
	s.emptyNode, s.near = n.empty(k), map[int]int{}
	for pairs := 1; pairs <= min(len(n.GPUs), len(n.VFs), mostShapes); pairs++ {
		nodes, admitted := s.affinity(pairs, pairs, n.CPUs)
		_, fits := s.affinity(pairs, pairs, 0)
		switch {
		case k.Policy != managers.Restricted:
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
	view    *preference.View
}

func (n Node) empty(k managers.Facts) emptyNode {
	return emptyNode{n, k, offer.View(n.Links, n.GPUs, n.VFs)}
}

// Affinity returns the NUMA nodes on which policy restricted puts a container on an empty node, and whether
// the policy admits the container at all.
func (n Node) Affinity(k managers.Facts, gpus, vfs int) ([]int, bool) {
	nodes, admitted := n.empty(k).affinity(gpus, vfs, n.CPUs)
	return nodes.Numbers(), admitted
}

func (e emptyNode) affinity(gpus, vfs, cpus int) (hints.Mask, bool) {
	requests := slices.DeleteFunc(offer.Requests(gpus, vfs), func(r devicemanager.Request) bool {
		return r.Count == 0 // the container does not name the resource
	})
	return e.rule().Nodes(append(e.view.Demands(requests), e.cpuDemand(cpus)))
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

// rule returns the kubelet's rule if its policy refuses containers, else the rule that Tandem requires.
func (e emptyNode) rule() hints.Rule {
	r := hints.Rule{Policy: hints.Restricted, MaxNodes: e.kubelet.AllowedNodes()}
	if policy := hints.Policy(e.kubelet.Policy); policy == hints.SingleNUMANode {
		r.Policy = policy
	}
	return r
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

// admittedCPUs says for shapes with which numbers of CPUs they are admitted.
func (e emptyNode) admittedCPUs(pairs []int) (lines []string) {
	all := len(e.kubelet.AllCPUs())
	var numbers []string
	having := map[string][]int{}
	for _, n := range pairs {
		fitting := topology.CPUSet{} // prints numbers as ranges
		for cpus := 1; cpus <= all; cpus++ {
			if _, fits := e.affinity(n, n, cpus); fits {
				fitting[cpus] = true
			}
		}
		text := fitting.String()
		if having[text] == nil {
			numbers = append(numbers, text)
		}
		having[text] = append(having[text], n)
	}
	for _, text := range numbers {
		line := shapeList(having[text]) + ": admitted with " + text + " CPUs"
		if text == "" {
			line = shapeList(having[text]) + ": rejected with any whole number of CPUs"
		}
		lines = append(lines, line)
	}
	return lines
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
	numbers := topology.CPUSet{} // prints numbers as ranges
	for _, n := range pairs {
		numbers[n] = true
	}
	texts := digits.ReplaceAllString(numbers.String(), "$0+$0")
	return strings.NewReplacer("-", " to ", ",", ", ").Replace(texts)
}

var digits = regexp.MustCompile(`\d+`)
