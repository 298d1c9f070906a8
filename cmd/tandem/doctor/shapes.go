// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/settings"
	"github.com/tandem-k8s/tandem/cmd/tandem/offer"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/coordination/preference"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// mostShapes bounds n of the shapes n+n that are looked at.
const mostShapes = 64

// shapes goes through the requests 1+1, 2+2 … on an empty node: which of them policy restricted always
// refuses, for the devices alone or for the CPUs beside them, and of which not all pairs can be on one
// switch.
func (e *examination) shapes() {
	if len(e.GPUs) == 0 || len(e.VFs) == 0 {
		return
	}
	var refused, withCPUs []int
	apart := map[int]int{} // n to the number of pairs that are on one switch
	var farthest []int
	for n := 1; n <= min(len(e.GPUs), len(e.VFs), mostShapes); n++ {
		nodes, admitted := e.affinity(n, n, e.CPUs)
		switch _, fits := e.affinity(n, n, 0); {
		case !fits:
			refused = append(refused, n)
		case !admitted:
			withCPUs = append(withCPUs, n)
		}
		if near := e.near(n, nodes); near < n { // of all nodes where it is not admitted: as without the policy
			apart[n] = near
			farthest = append(farthest, n)
		}
	}
	if e.kubelet.Policy == restricted {
		e.refusedShapes(refused)
		e.refusedForCPUs(withCPUs)
	}
	e.farShapes(farthest, apart)
}

// Affinity tells on which NUMA nodes policy restricted puts a container on an empty node, and whether it
// admits it at all.
func (n Node) Affinity(gpus, vfs int) ([]int, bool) {
	e := &examination{Node: n}
	p, _ := settings.FindProcess(n.ProcRoot) // without it the files are in their usual place,
	e.kubelet, _ = n.facts(p, nil)           // and without them there is no policy
	nodes, admitted := e.affinity(gpus, vfs, n.CPUs)
	return nodes.Numbers(), admitted
}

func (e *examination) affinity(gpus, vfs, cpus int) (hints.Mask, bool) {
	demands := e.emptyNode().Demands(offer.Requests(gpus, vfs))
	if cpus > 0 && e.kubelet.CPUPolicy == static {
		if reserved, err := e.kubelet.reserved(); err == nil {
			free := e.kubelet.allCPUs().Without(reserved)
			demands = append(demands, hints.CPUs(cpus, e.kubelet.cpus, free))
		}
	}
	return hints.Restricted.Nodes(demands...)
}

// emptyNode is the empty node as the coordinator sees it.
func (e *examination) emptyNode() *preference.View {
	if e.view == nil {
		e.view = offer.View(e.Links, e.GPUs, e.VFs)
	}
	return e.view
}

// near is how many of n pairs can be on one switch each, with devices of these NUMA nodes; of all where there
// are none.
func (e *examination) near(n int, nodes hints.Mask) int {
	view := e.emptyNode()
	choice, err := placement.Choose(e.Tree, view.Placement(view.Expected(offer.Requests(n, n), nodes)))
	if err != nil {
		return 0
	}
	return placement.Together(choice.Pairs)
}

func (e *examination) farShapes(list []int, apart map[int]int) {
	if len(list) == 0 {
		return
	}
	f := Finding{
		ID: "far-shapes", Severity: Warning,
		Summary: fmt.Sprintf("Of a container that asks for %s not every GPU can have a VF on its switch.",
			shapeList(list)),
		Why: "GPUs and NICs are plugged in that way: some switches have GPUs and no NIC whose VFs are offered, " +
			"or fewer VFs than GPUs.",
		Fix: []string{
			"ask for fewer, or make VFs on the NICs near the other GPUs and select them in config.json",
			"tandem topo shows which NIC is near which GPU",
		},
	}
	for _, n := range list {
		f.Evidence = append(f.Evidence, fmt.Sprintf("%d+%d: %d of %d pairs on one switch", n, n, apart[n], n))
	}
	f.Evidence = some(f.Evidence)
	if list[0] == 1 {
		f.ID, f.Severity = "no-shared-switch", Error
		f.Summary = "No GPU shares a switch with any VF that is offered."
		f.Why = "Every transfer between a GPU and a VF crosses the host bridge; NCCL switches GPUDirect RDMA off " +
			"there. A virtual machine often hides the switches."
		f.Fix = append(f.Fix, "in a virtual machine: the provider's NCCL topology file, "+
			"for the daemons (topologyFile in the chart) and for tandem doctor --topology-file; "+
			"or a hypervisor that shows the switches")
	}
	e.find(f)
}

// shapeList is "1+1, 3+3 to 8+8".
func shapeList(list []int) string {
	numbers := topology.CPUSet{} // which writes them as ranges
	for _, n := range list {
		numbers[n] = true
	}
	shapes := number.ReplaceAllString(numbers.String(), "$0+$0")
	return strings.NewReplacer("-", " to ", ",", ", ").Replace(shapes)
}

var number = regexp.MustCompile(`\d+`)
