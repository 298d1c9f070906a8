// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// refusedShapes are those whose GPUs and VFs cannot come from one set of NUMA nodes.
func (e *examination) refusedShapes(refused []int) {
	if len(refused) == 0 {
		return
	}
	f := Finding{
		ID: "refused-shapes", Severity: Error,
		Summary:  fmt.Sprintf("Containers that ask for %s are refused, on an empty node too.", shapeList(refused)),
		Evidence: []string{"GPUs: " + perNode(e.GPUs), "VFs: " + perNode(e.VFs)},
		Why:      "Where some GPUs have a NUMA node, the kubelet counts those alone: they are too few.",
	}
	if slices.ContainsFunc(e.VFs, hasNode) {
		f.Why = "Policy restricted wants GPUs and VFs on the same set of NUMA nodes, as small as it can be for " +
			"each of them; the VFs fit fewer nodes than the GPUs, or the reverse."
		f.Fix = append(f.Fix,
			`"excludeTopology": true in the pool of VFs (config.json, or SriovNetworkNodePolicy): `+
				"the kubelet leaves the choice to Tandem. The price: it no longer sees where VFs are used up, and a "+
				"container of 2 GPUs and 2 VFs can get far pairs on the NUMA node that it picks while another one "+
				"has near ones. Worth it where containers ask for the sizes above",
			"or as many VFs on each NUMA node as GPUs: fewer in sriov_numvfs")
	}
	if slices.ContainsFunc(e.GPUs, hasNode) && !allHaveNodes(e.GPUs) {
		f.Fix = append(f.Fix, "a NUMA node for every GPU: see numa-node")
	}
	if len(f.Fix) == 0 {
		f.Fix = []string{"ask for fewer"}
	}
	e.onGuess(&f)
	e.find(f)
}

// refusedForCPUs are the shapes whose devices fit, but not together with the CPUs.
func (e *examination) refusedForCPUs(refused []int) {
	if len(refused) == 0 {
		return
	}
	f := Finding{
		ID: "refused-shapes", Severity: Error,
		Summary: fmt.Sprintf("Containers that ask for %s and for %s are refused, on an empty node too.",
			shapeList(refused), count(e.CPUs, "CPU")),
		Evidence: append([]string{
			"CPUs for containers: " + e.cpusPerNode(), "GPUs: " + perNode(e.GPUs), "VFs: " + perNode(e.VFs),
		}, e.admittedCPUs(refused)...),
		Why: "Policy restricted wants the CPUs of a container from the same set of NUMA nodes as its devices, " +
			"as small as it can be for each of them; so many CPUs need more nodes than the devices, or fewer.",
		Fix: []string{
			"ask for a number of CPUs with which the shape is admitted",
			"or for one that is not whole (cpu: 7500m): the CPU manager leaves such a container alone, " +
				"and its CPUs may be on any node",
		},
	}
	if !slices.ContainsFunc(refused, func(n int) bool { _, fits := e.affinity(n, 0, e.CPUs); return !fits }) {
		e.onGuess(&f) // beside the GPUs alone so many CPUs fit
	}
	e.find(f)
}

// onGuess makes a finding about VFs a guess where they are one.
func (e *examination) onGuess(f *Finding) {
	if e.Guess == "" {
		return
	}
	f.Severity = Unknown
	f.Evidence = append(f.Evidence,
		e.Guess+": these are the VFs of all NICs with RDMA, as if they were offered with their NUMA nodes")
	f.Fix = append(f.Fix, "tandem doctor --config config.json tells for the pools that there are, "+
		"and so does a tandem-rdma that runs")
}

// admittedCPUs says for shapes with how many CPUs they are admitted.
func (e *examination) admittedCPUs(shapes []int) []string {
	all := len(e.kubelet.allCPUs())
	var numbers []string
	having := map[string][]int{}
	for _, n := range shapes {
		fitting := topology.CPUSet{} // which writes numbers as ranges
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
	var lines []string
	for _, text := range numbers {
		line := shapeList(having[text]) + ": admitted with " + text + " CPUs"
		if text == "" {
			line = shapeList(having[text]) + ": admitted with no whole number of CPUs"
		}
		lines = append(lines, line)
	}
	return some(lines)
}

// cpusPerNode counts the CPUs that containers can have.
func (e *examination) cpusPerNode() string {
	reserved, _ := e.kubelet.reserved() // without an error, or there would be no demand for CPUs
	var free []Device
	for number, set := range e.kubelet.cpus {
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
		where := fmt.Sprintf("on node %d", number)
		if number < 0 {
			where = "without a node"
		}
		nodes = append(nodes, fmt.Sprintf("%d %s", counts[number], where))
	}
	return strings.Join(nodes, ", ")
}

func hasNode(d Device) bool {
	_, known := d.NUMA.Number()
	return known
}

func allHaveNodes(devices []Device) bool {
	return !slices.ContainsFunc(devices, func(d Device) bool { return !hasNode(d) })
}
