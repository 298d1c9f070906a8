// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/finding"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/managers"
	"github.com/tandem-k8s/tandem/cmd/tandem/document"
)

// topologyPolicy finds another policy than restricted, with the requests that restricted would refuse.
func topologyPolicy(s shapes) []Finding {
	found := managers.TopologyPolicy(s.kubelet)
	for i := range found {
		f := &found[i]
		f.Evidence = append(f.Evidence, s.wouldRefuse()...)
		f.Fix = append(f.Fix, s.excluding()...)
	}
	return found
}

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
		lines = append(lines, fmt.Sprintf(rejected, shapeList(s.withCPUs)+" with "+document.Count(s.CPUs, "CPU")))
	}
	if len(s.refused)+len(s.withCPUs) == 0 {
		lines = append(lines, "under policy restricted an empty node rejects no container with as many VFs as GPUs")
	}
	if len(s.fewer) > 0 {
		lines = append(lines, fmt.Sprintf(rejected, strings.Join(s.fewer, ", ")))
	}
	if s.Guess != "" {
		lines = append(lines, s.guess())
	}
	return lines
}

// excluding returns the remedies for refused requests by the hints of the VFs.
func (s shapes) excluding() (fix []string) {
	if !slices.ContainsFunc(s.VFs, hasNode) {
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

// remark says which containers with fewer VFs than GPUs are refused, "" for none and with a finding. This is
// no finding: who requests as many VFs as GPUs loses near pairs by the remedy.
func (s shapes) remark() string {
	if s.kubelet.Policy != managers.Restricted || len(s.fewer) == 0 || len(s.refused) > 0 {
		return ""
	}
	text := fmt.Sprintf("Containers that request %s are rejected, even on an empty node; %s.",
		strings.Join(s.fewer, ", "), strings.Join(s.excluding(), "; "))
	if s.Guess != "" {
		text += " This is a guess: " + s.guess() + "."
	}
	return text
}

// refusedShapes finds shapes whose GPUs and VFs cannot come from one set of NUMA nodes.
func refusedShapes(s shapes) []Finding {
	if s.kubelet.Policy != managers.Restricted || len(s.refused) == 0 {
		return nil
	}
	f := Finding{
		ID: "refused-shapes", Severity: Error,
		Summary: fmt.Sprintf("Containers that request %s are rejected, even on an empty node.",
			shapeList(s.refused)),
		Evidence: []string{"GPUs: " + perNode(s.GPUs), "VFs: " + perNode(s.VFs)},
		Why:      "If only some GPUs have a NUMA node, the kubelet counts only these GPUs, which are too few.",
	}
	if len(s.fewer) > 0 {
		f.Evidence = append(f.Evidence, "rejected as well: "+strings.Join(s.fewer, ", "))
	}
	if slices.ContainsFunc(s.VFs, hasNode) {
		f.Why = "Policy restricted requires the smallest possible set of NUMA nodes for each resource, and the " +
			"same set for GPUs and VFs; here the VFs fit on fewer nodes than the GPUs, or the reverse."
		f.Fix = append(f.Fix, s.excluding()...)
	}
	if slices.ContainsFunc(s.GPUs, hasNode) && !allHaveNodes(s.GPUs) {
		f.Fix = append(f.Fix, "set a NUMA node for every GPU: see numa-node")
	}
	if len(f.Fix) == 0 {
		f.Fix = []string{"ask for fewer"}
	}
	return []Finding{s.guessed(f)}
}

// refusedForCPUs finds shapes whose devices fit, but not together with the CPUs.
func refusedForCPUs(s shapes) []Finding {
	if s.kubelet.Policy != managers.Restricted || len(s.withCPUs) == 0 {
		return nil
	}
	f := Finding{
		ID: "refused-shapes", Severity: Error,
		Summary: fmt.Sprintf("Containers that request %s with %s are rejected, even on an empty node.",
			shapeList(s.withCPUs), document.Count(s.CPUs, "CPU")),
		Evidence: append([]string{
			"CPUs for containers: " + s.cpusPerNode(), "GPUs: " + perNode(s.GPUs), "VFs: " + perNode(s.VFs),
		}, finding.Some(s.admittedCPUs(s.withCPUs))...),
		Why: "Policy restricted requires the CPUs of a container on the same set of NUMA nodes as its devices, " +
			"the smallest possible set for each; this number of CPUs needs more or fewer nodes than the devices.",
		Fix: []string{
			"request a number of CPUs with which the shape is admitted",
			"or a fractional number (cpu: 7500m): the CPU manager ignores such a container, " +
				"and its CPUs may be on any node",
		},
	}
	if slices.ContainsFunc(s.withCPUs, func(n int) bool { _, fits := s.affinity(n, 0, s.CPUs); return !fits }) {
		return []Finding{f} // without VFs too
	}
	return []Finding{s.guessed(f)}
}

// guessed makes a finding about VFs a guess if the VFs are one.
func (n Node) guessed(f Finding) Finding {
	if n.Guess == "" {
		return f
	}
	f.Severity = Unknown
	f.Evidence = append(f.Evidence, n.guess())
	f.Fix = append(f.Fix, "for the verdict on the actual pools, run tandem doctor --config config.json, "+
		"or start tandem-rdma")
	return f
}

// guess says what the VFs are if nobody has named a pool.
func (n Node) guess() string {
	return n.Guess + ": assumes that the VFs of all NICs with RDMA are one pool"
}

// farShapes finds shapes of which not every GPU can have a VF on its switch.
func farShapes(s shapes) []Finding {
	if len(s.far) == 0 {
		return nil
	}
	f := Finding{
		ID: "far-shapes", Severity: Warning,
		Summary: fmt.Sprintf("In a container that requests %s, some GPUs cannot have a VF on their switch.",
			shapeList(s.far)),
		Why: "This results from the PCIe slots: some switches have GPUs and no NIC whose VFs are offered, " +
			"or fewer VFs than GPUs.",
		Fix: []string{
			"request fewer, or create VFs on the NICs near the other GPUs and select the VFs in config.json",
			"tandem topo shows which NIC is near which GPU",
		},
	}
	for _, n := range s.far {
		f.Evidence = append(f.Evidence, fmt.Sprintf("%d+%d: %d of %d pairs on one switch", n, n, s.near[n], n))
	}
	f.Evidence = finding.Some(f.Evidence)
	if s.far[0] == 1 {
		f.ID, f.Severity = "no-shared-switch", Error
		f.Summary = "No GPU shares a switch with an offered VF."
		f.Why = "Every transfer between a GPU and a VF crosses the host bridge, and NCCL disables GPUDirect RDMA " +
			"for such pairs. Virtual machines often hide the switches."
		f.Fix = append(f.Fix, "in a virtual machine: the provider's NCCL topology file, "+
			"for the daemons (topologyFile in the chart) and for tandem doctor --topology-file; "+
			"or a hypervisor that exposes the switches")
	}
	return []Finding{f}
}

func hasNode(d Device) bool {
	_, known := d.NUMA.Number()
	return known
}

func allHaveNodes(devices []Device) bool {
	return !slices.ContainsFunc(devices, func(d Device) bool { return !hasNode(d) })
}
