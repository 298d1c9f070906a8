// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/finding"
)

// refusedShapes finds shapes whose GPUs and VFs cannot come from one set of NUMA nodes.
func refusedShapes(s shapes) []Finding {
	if len(s.refused) == 0 {
		return nil
	}
	f := Finding{
		ID: "refused-shapes", Severity: Error,
		Summary:  fmt.Sprintf("Containers that ask for %s are refused, on an empty node too.", shapeList(s.refused)),
		Evidence: []string{"GPUs: " + perNode(s.GPUs), "VFs: " + perNode(s.VFs)},
		Why:      "Where some GPUs have a NUMA node, the kubelet counts those alone: they are too few.",
	}
	if slices.ContainsFunc(s.VFs, hasNode) {
		f.Why = "Policy restricted wants GPUs and VFs on the same set of NUMA nodes, as small as it can be for " +
			"each of them; the VFs fit fewer nodes than the GPUs, or the reverse."
		f.Fix = append(f.Fix,
			`"excludeTopology": true in the pool of VFs (config.json, or SriovNetworkNodePolicy): `+
				"the kubelet leaves the choice to Tandem. The price: it no longer sees where VFs are used up, and a "+
				"container of 2 GPUs and 2 VFs can get far pairs on the NUMA node that it picks while another one "+
				"has near ones. Worth it where containers ask for the sizes above",
			"or as many VFs on each NUMA node as GPUs: fewer in sriov_numvfs")
	}
	if slices.ContainsFunc(s.GPUs, hasNode) && !allHaveNodes(s.GPUs) {
		f.Fix = append(f.Fix, "a NUMA node for every GPU: see numa-node")
	}
	if len(f.Fix) == 0 {
		f.Fix = []string{"ask for fewer"}
	}
	return []Finding{s.guessed(f)}
}

// refusedForCPUs finds shapes whose devices fit, but not together with the CPUs.
func refusedForCPUs(s shapes) []Finding {
	if len(s.withCPUs) == 0 {
		return nil
	}
	f := Finding{
		ID: "refused-shapes", Severity: Error,
		Summary: fmt.Sprintf("Containers that ask for %s and for %s are refused, on an empty node too.",
			shapeList(s.withCPUs), finding.Count(s.CPUs, "CPU")),
		Evidence: append([]string{
			"CPUs for containers: " + s.cpusPerNode(), "GPUs: " + perNode(s.GPUs), "VFs: " + perNode(s.VFs),
		}, finding.Some(s.admittedCPUs(s.withCPUs))...),
		Why: "Policy restricted wants the CPUs of a container from the same set of NUMA nodes as its devices, " +
			"as small as it can be for each of them; so many CPUs need more nodes than the devices, or fewer.",
		Fix: []string{
			"ask for a number of CPUs with which the shape is admitted",
			"or for one that is not whole (cpu: 7500m): the CPU manager leaves such a container alone, " +
				"and its CPUs may be on any node",
		},
	}
	if slices.ContainsFunc(s.withCPUs, func(n int) bool { _, fits := s.affinity(n, 0, s.CPUs); return !fits }) {
		return []Finding{f} // without VFs too
	}
	return []Finding{s.guessed(f)}
}

// guessed makes a finding about VFs a guess if the VFs are one.
func (s shapes) guessed(f Finding) Finding {
	if s.Guess == "" {
		return f
	}
	f.Severity = Unknown
	f.Evidence = append(f.Evidence,
		s.Guess+": these are the VFs of all NICs with RDMA, as if they were offered with their NUMA nodes")
	f.Fix = append(f.Fix, "tandem doctor --config config.json tells for the pools that there are, "+
		"and so does a tandem-rdma that runs")
	return f
}

// farShapes finds shapes of which not every GPU can have a VF on its switch.
func farShapes(s shapes) []Finding {
	if len(s.far) == 0 {
		return nil
	}
	f := Finding{
		ID: "far-shapes", Severity: Warning,
		Summary: fmt.Sprintf("Of a container that asks for %s not every GPU can have a VF on its switch.",
			shapeList(s.far)),
		Why: "GPUs and NICs are plugged in that way: some switches have GPUs and no NIC whose VFs are offered, " +
			"or fewer VFs than GPUs.",
		Fix: []string{
			"ask for fewer, or make VFs on the NICs near the other GPUs and select them in config.json",
			"tandem topo shows which NIC is near which GPU",
		},
	}
	for _, n := range s.far {
		f.Evidence = append(f.Evidence, fmt.Sprintf("%d+%d: %d of %d pairs on one switch", n, n, s.near[n], n))
	}
	f.Evidence = finding.Some(f.Evidence)
	if s.far[0] == 1 {
		f.ID, f.Severity = "no-shared-switch", Error
		f.Summary = "No GPU shares a switch with any VF that is offered."
		f.Why = "Every transfer between a GPU and a VF crosses the host bridge; NCCL switches GPUDirect RDMA off " +
			"there. A virtual machine often hides the switches."
		f.Fix = append(f.Fix, "in a virtual machine: the provider's NCCL topology file, "+
			"for the daemons (topologyFile in the chart) and for tandem doctor --topology-file; "+
			"or a hypervisor that shows the switches")
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
