// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
)

// shapeChecks are the checks of the request shapes.
var shapeChecks = []check{
	{ // GPUs and VFs cannot come from one set of NUMA nodes
		id: "refused-shapes", severity: Error, in: ofPlugins | ofRecording,
		why:  "If only some GPUs have a NUMA node, the kubelet counts only these GPUs, which are too few.",
		find: (*Node).findRefusedShapes,
	},
	{ // the devices fit, but not together with the CPUs
		id: "refused-shapes", severity: Error, in: ofPlugins | ofRecording,
		why: "Policy restricted requires the CPUs of a container on the same set of NUMA nodes as its devices, " +
			"the smallest possible set for each; this number of CPUs needs more or fewer nodes than the devices.",
		fix: []string{
			"request a number of CPUs with which the shape is admitted",
			"or a fractional number (cpu: 7500m): the CPU manager ignores such a container, " +
				"and its CPUs may be on any node",
		},
		find: (*Node).findRefusedForCPUs,
	},
	{ // not every GPU can have a VF on its switch
		id: "far-shapes", severity: Warning, in: ofPlugins | ofRecording,
		why: "This results from the PCIe slots: some switches have GPUs and no NIC whose VFs are offered, " +
			"or fewer VFs than GPUs.",
		fix: []string{
			"request fewer, or create VFs on the NICs near the other GPUs and select the VFs in config.json",
			"tandem topo shows which NIC is near which GPU",
		},
		find: (*Node).findFarShapes,
	},
	{ // NUMA nodes and resources whose hints the kubelet merges too slowly (kubernetes#137700)
		id: "slow-admission", severity: Warning, in: ofPlugins,
		why: "The Topology Manager tries every combination of the sets of NUMA nodes that suffice for each " +
			"resource, and meanwhile no pod of the node starts or ends (kubernetes#137700). A resource with n NUMA " +
			"nodes multiplies the time by 2^n-1, on 8 nodes by 255. A container with all these resources has the " +
			"most combinations if one device of each suffices.",
		find: (*Node).findSlowMerge,
	},
}

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

func (n *Node) readShapes() (s shapes) {
	s.emptyNode, s.near = n.emptyUnder(model.Restricted), map[int]int{}
	if len(n.GPUs) == 0 || len(n.VFs) == 0 {
		return s
	}
	s.fewer = s.fewerVFs()
	for pairs := 1; pairs <= min(len(n.GPUs), len(machine.Devices(n.VFs)), mostShapes); pairs++ {
		nodes, admitted := s.findAffinity(pairs, pairs, n.CPUs)
		_, fits := s.findAffinity(pairs, pairs, 0)
		switch {
		case !fits:
			s.refused = append(s.refused, pairs)
		case !admitted:
			s.withCPUs = append(s.withCPUs, pairs)
		}
		// For a shape that is not admitted there are no nodes: all count, as without the policy.
		if near := s.countTogether(pairs, nodes); near < pairs {
			s.near[pairs] = near
			s.far = append(s.far, pairs)
		}
	}
	return s
}

// fewerVFs returns the refused requests of GPUs with fewer VFs, as "5 to 8 GPUs with 1 to 4 VFs", without
// those of GPUs that are refused alone.
func (e emptyNode) fewerVFs() (requests []string) {
	var refused groups
	for gpus := 2; gpus <= min(len(e.GPUs), mostShapes); gpus++ {
		if _, admitted := e.findAffinity(gpus, 0, 0); !admitted {
			continue
		}
		var vfs []int
		for n := 1; n < gpus && n <= len(machine.Devices(e.VFs)); n++ {
			if _, admitted := e.findAffinity(gpus, n, 0); !admitted {
				vfs = append(vfs, n)
			}
		}
		_, equal := e.findAffinity(gpus, gpus, 0)
		switch {
		case len(vfs) == gpus-1 && !equal:
			refused.addNumber("fewer VFs", gpus)
		case len(vfs) == 1 && vfs[0] == 1:
			refused.addNumber("1 VF", gpus)
		case len(vfs) > 0:
			refused.addNumber(formatRanges(numbersOf(vfs...))+" VFs", gpus)
		}
	}
	for _, vfs := range refused.texts {
		requests = append(requests, formatRanges(numbersOf(refused.of[vfs]...))+" GPUs with "+vfs)
	}
	return requests
}

// admittedCPUs says for shapes with which numbers of CPUs they are admitted.
func (e emptyNode) admittedCPUs(pairs []int) (lines []string) {
	all := len(e.settings.allCPUs())
	var admitted groups
	for _, n := range pairs {
		fitting := topology.CPUSet{}
		for cpus := 1; cpus <= all; cpus++ {
			if _, fits := e.findAffinity(n, n, cpus); fits {
				fitting[cpus] = true
			}
		}
		admitted.addNumber(fitting.String(), n)
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

func (g *groups) addNumber(text string, n int) {
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
	reserved, err := e.settings.reservedSet()
	if err != nil {
		return "an unknown number"
	}
	var free []model.Device
	for number, set := range e.settings.CPUs {
		for range set.Without(reserved) {
			free = append(free, model.Device{NUMA: topology.Node(number)})
		}
	}
	return perNode(free)
}

// listPlaces says where the devices are.
func (n *Node) listPlaces() []string {
	lines := []string{"GPUs: " + perNode(n.GPUs)}
	if len(n.VFs) == 1 {
		return append(lines, "VFs: "+perNode(n.VFs[0].Devices))
	}
	for _, pool := range n.VFs {
		lines = append(lines, "VFs of "+pool.Name+": "+perNode(pool.Devices))
	}
	return lines
}

// perNode is "4 on node 0, 4 on node 1".
func perNode(devices []model.Device) string {
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
	return formatRanges(digits.ReplaceAllString(numbersOf(pairs...), "$0+$0"))
}

// numbersOf is "1,3-8".
func numbersOf(numbers ...int) string {
	set := topology.CPUSet{} // prints numbers as ranges
	for _, n := range numbers {
		set[n] = true
	}
	return set.String()
}

// formatRanges is "1, 3 to 8" for "1,3-8".
func formatRanges(numbers string) string {
	return strings.NewReplacer("-", " to ", ",", ", ").Replace(numbers)
}

var digits = regexp.MustCompile(`\d+`)

// wouldRefuse returns the requests that policy restricted refuses, a sentence each.
func (s shapes) wouldRefuse() (lines []string) {
	if len(s.GPUs) == 0 || len(s.VFs) == 0 {
		return nil
	}
	const rejected = "under policy restricted containers that request %s are rejected, even on an empty node"
	if len(s.refused) > 0 {
		lines = append(lines, fmt.Sprintf(rejected, shapeList(s.refused)))
	}
	if len(s.withCPUs) > 0 {
		lines = append(lines, fmt.Sprintf(rejected, shapeList(s.withCPUs)+" with "+cli.Count(s.CPUs, "CPU")))
	}
	if len(s.refused)+len(s.withCPUs) == 0 {
		lines = append(lines, "under policy restricted an empty node rejects no container with as many VFs as GPUs")
	}
	if len(s.fewer) > 0 {
		lines = append(lines, fmt.Sprintf(rejected, strings.Join(s.fewer, ", ")))
	}
	if s.Guess != "" {
		lines = append(lines, s.describeGuess())
	}
	return lines
}

// listRemedies returns the remedies for refused requests by the hints of the VFs.
func (s shapes) listRemedies() (fix []string) {
	if !slices.ContainsFunc(machine.Devices(s.VFs), hasNode) {
		return nil
	}
	if len(s.refused) > 0 {
		fix = append(fix, `no "excludeTopology" in the pool of VFs (config.json; true in `+
			"SriovNetworkNodePolicy): Tandem then selects the VFs. Disadvantage: the kubelet does not see NUMA nodes "+
			"without free VFs, and a container with 2 GPUs and 2 VFs can get far pairs on the kubelet's NUMA node "+
			"although another node has near pairs; false prefers a rejection to far pairs. Recommended if containers "+
			"request the sizes above",
			"or create as many VFs as GPUs on each NUMA node, with a smaller sriov_numvfs")
	} else if len(s.fewer) > 0 {
		fix = append(fix, `"excludeTopology": true in the pool of VFs also admits containers with fewer VFs `+
			`than GPUs; "auto" and false prefer their rejection to VFs of other NUMA nodes`)
	}
	return fix
}

// remarkFewer says which containers with fewer VFs than GPUs are refused, "" for none and with a finding.
// This is no finding: who requests as many VFs as GPUs loses near pairs by the remedy.
func (s shapes) remarkFewer() string {
	if s.settings.Policy != restricted || len(s.fewer) == 0 || len(s.refused) > 0 {
		return ""
	}
	text := fmt.Sprintf("Containers that request %s are rejected, even on an empty node; %s.",
		strings.Join(s.fewer, ", "), strings.Join(s.listRemedies(), "; "))
	if s.Guess != "" {
		text += " This is a guess: " + s.describeGuess() + "."
	}
	return text
}

func (n *Node) findRefusedShapes(f *Finding) {
	s := n.shapes
	if s.settings.Policy != restricted || len(s.refused) == 0 {
		return
	}
	f.Summary = fmt.Sprintf(alwaysRejected, shapeList(s.refused))
	f.Evidence = s.listPlaces()
	if len(s.fewer) > 0 {
		f.addSeen("rejected as well: %s", strings.Join(s.fewer, ", "))
	}
	if slices.ContainsFunc(machine.Devices(s.VFs), hasNode) {
		f.Why = "Policy restricted requires the smallest possible set of NUMA nodes for each resource, and the " +
			"same set for GPUs and VFs; here the VFs fit on fewer nodes than the GPUs, or the reverse."
		f.Fix = append(f.Fix, s.listRemedies()...)
	}
	if slices.ContainsFunc(s.GPUs, hasNode) &&
		slices.ContainsFunc(s.GPUs, func(d model.Device) bool { return !hasNode(d) }) {
		f.Fix = append(f.Fix, "set a NUMA node for every GPU: see numa-node")
	}
	if len(f.Fix) == 0 {
		f.Fix = []string{"ask for fewer"}
	}
	s.markGuess(f)
}

func (n *Node) findRefusedForCPUs(f *Finding) {
	s := n.shapes
	if s.settings.Policy != restricted || len(s.withCPUs) == 0 {
		return
	}
	f.Summary = fmt.Sprintf(alwaysRejected, shapeList(s.withCPUs)+" with "+cli.Count(s.CPUs, "CPU"))
	f.addSeen("CPUs for containers: %s", s.cpusPerNode())
	f.Evidence = slices.Concat(f.Evidence, s.listPlaces(), someOf(s.admittedCPUs(s.withCPUs)))
	isRefused := func(gpus int) bool { _, fits := s.findAffinity(gpus, 0, s.CPUs); return !fits }
	if !slices.ContainsFunc(s.withCPUs, isRefused) { // without VFs too
		s.markGuess(f)
	}
}

// alwaysRejected is a sentence about refused requests.
const alwaysRejected = "Containers that request %s are rejected, even on an empty node."

// markGuess makes a finding about VFs a guess if the VFs are one.
func (n *Node) markGuess(f *Finding) {
	if n.Guess != "" {
		f.Severity = Unknown
		f.addSeen("%s", n.describeGuess())
		f.Fix = append(f.Fix, configFix)
	}
}

// configFix is the remedy for a guess about the VFs.
const configFix = "for the verdict on the actual pools, run tandem doctor --config config.json, " +
	"or start tandem-rdma"

// describeGuess says what the VFs are if nobody has named a pool.
func (n *Node) describeGuess() string {
	return n.Guess + ": assumes that the VFs of all NICs with RDMA are one pool"
}

func (n *Node) findFarShapes(f *Finding) {
	s := n.shapes
	if len(s.far) == 0 {
		return
	}
	f.Summary = fmt.Sprintf("In a container that requests %s, some GPUs cannot have a VF on their switch.",
		shapeList(s.far))
	for _, n := range s.far {
		f.addSeen("%d+%d: %d of %d pairs on one switch", n, n, s.near[n], n)
	}
	f.Evidence = someOf(f.Evidence)
	if s.far[0] == 1 {
		f.ID, f.Severity = "no-shared-switch", Error
		f.Summary = "No GPU shares a switch with an offered VF."
		f.Why = "Every transfer between a GPU and a VF crosses the host bridge, and NCCL disables GPUDirect RDMA " +
			"for such pairs. Virtual machines often hide the switches."
		f.Fix[0] = "create VFs on NICs near the GPUs and select the VFs in config.json"
		f.Fix = append(f.Fix, "in a virtual machine: the provider's NCCL topology file, "+
			"for the daemons (topologyFile in the chart) and for tandem doctor --topology-file; "+
			"or a hypervisor that exposes the switches")
	}
}

func hasNode(d model.Device) bool {
	_, known := d.NUMA.Number()
	return known
}
