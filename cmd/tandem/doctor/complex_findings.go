// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/finding"
	"github.com/tandem-k8s/tandem/cmd/tandem/document"
	"github.com/tandem-k8s/tandem/topology"
)

// complexFaults finds complexes without a near NIC. Without V3 of the DMA function the NIC is unknown.
func complexFaults(c complexes) []Finding {
	var broken, unknown []string
	for _, one := range c.all {
		switch {
		case one.Fault == "" && one.Unread:
			unknown = append(unknown, fmt.Sprintf("keyword V3 in the vpd file of a PF beside NIC %s is unknown, "+
				"and so whether DMA function %s serves the PF", one.NICs[0], one.Function))
		case one.Fault == "":
		case one.Unread:
			unknown = append(unknown, one.Fault)
		default:
			broken = append(broken, one.Fault)
		}
	}
	const why = "Tandem knows no NIC near the GPUs of such a complex: the GPUs are in no pair."
	return append(
		finding.OfSome(broken, Finding{
			ID: "complex", Severity: Warning,
			Summary: document.Count(len(broken), "complex") + " of GPU and NIC cannot be used.", Why: why,
			Fix: []string{
				"look for missing functions with lspci -tv",
				"a DMA function and the PFs of its NIC have the same keyword V3: lspci -vv, as root",
			},
		}),
		finding.OfSome(unknown, Finding{
			ID: "complex", Severity: Unknown,
			Summary: document.CountAre(len(unknown), "NIC") + " not known of GPUs with a DMA function.",
			Why:     "Tandem knows no NIC near such a GPU, or not all PFs of the NIC: what is unknown is in no pair.",
			Fix: []string{
				"run tandem doctor as root, and the daemons as in the manifests (runAsUser: 0)",
				"still unknown to root: the vpd file is absent or damaged",
			},
		})...)
}

// complexATS finds NICs of C2C complexes with ATS, and of inline complexes with ATS on bare metal or without
// in guests. ATS beside ports with a wrong ACS is part of the finding about ACS.
func complexATS(c complexes) []Finding {
	var with, without []string
	undecided := c.usage == either && len(c.wrongPorts(topology.KindInline)) == 0
	for _, one := range c.all {
		for _, a := range one.NICs {
			nic, _ := c.tree.Device(a)
			switch {
			case nic.ATS && (one.Kind == topology.KindC2C || one.Kind == topology.KindInline && undecided):
				with = append(with, fmt.Sprintf("NIC %s: ATS in the configuration space", a))
			case !nic.ATS && one.Kind == topology.KindInline && c.usage == guests && c.isRead(a):
				without = append(without, fmt.Sprintf("NIC %s: no ATS in the configuration space", a))
			}
		}
	}
	fix := []string{"mlxconfig -d ADDRESS set ATS_ENABLED=0, and a cold reset"}
	if undecided {
		fix = append(fix, "if the devices are for guests: keep ATS, and set 1x111x1 at the NIC's downstream port, "+
			"xx111x1 at the GPU's downstream port and the root port (pci=config_acs=)")
	}
	return append(
		finding.OfSome(with, Finding{
			ID: "complex-ats", Severity: Warning,
			Summary: document.Count(len(with), "NIC") + " with ATS in complexes that want none.",
			Why: "A NIC with ATS sends translated requests. On bare metal and over NVLink-C2C the right values of " +
				"ACS are those for untranslated ones (rdma_topo of rdma-core).",
			Fix: fix,
		}),
		finding.OfSome(without, Finding{
			ID: "complex-ats", Severity: Warning,
			Summary: document.Count(len(without), "NIC") + " without ATS, for guests.",
			Why: "Only translated requests pass from the NIC to the GPU within the switch; without ATS GPUDirect " +
				"RDMA of a guest crosses the root complex and the IOMMU, and is slow.",
			Fix: []string{"mlxconfig -d ADDRESS set ATS_ENABLED=1, and a cold reset"},
		})...)
}

// isRead reports whether the configuration space of a function is known: that of the port above is.
func (c complexes) isRead(a topology.Address) bool {
	d, _ := c.tree.Device(a)
	bridges := d.Bridges()
	port, ok := c.tree.Device(bridges[len(bridges)-1])
	return ok && port.ACS != topology.ACSUnknown
}

// complexGroups finds functions whose IOMMU group does not fit the complex: DMA function and GPU share a
// group; GPUs and NICs of C2C complexes and of guests have groups of their own; on bare metal NIC and GPU of
// an inline complex share a group, or have none.
func complexGroups(c complexes) []Finding {
	var list []string
	for _, one := range c.all {
		switch {
		case one.Kind == topology.KindDMA:
			list = append(list, c.apart(append([]topology.Address{one.Function}, one.GPUs...), false)...)
		case one.Kind == topology.KindC2C, c.usage == guests:
			list = append(list, c.together(append(slices.Clone(one.GPUs), one.NICs...))...)
		case c.usage == bareMetal:
			list = append(list, c.apart(append(slices.Clone(one.GPUs), one.NICs...), true)...)
		}
	}
	return finding.OfSome(list, Finding{
		ID: "complex-iommu", Severity: Warning,
		Summary: "IOMMU groups of GPUs and NICs do not fit their complexes.",
		Why: "The GPU's driver allows GPUDirect RDMA over a DMA function only from the GPU's IOMMU group, and " +
			"functions that are independent have groups of their own.",
		Fix: []string{
			"the right ACS at boot (pci=config_acs=, or the BIOS): the kernel makes the groups then, and setpci " +
				"does not change them",
			"without any group: enable the IOMMU in the firmware and the kernel",
		},
	})
}

// apart returns the functions with another IOMMU group than the first; none of them needs a group if that is
// allowed.
func (c complexes) apart(functions []topology.Address, noneAllowed bool) (list []string) {
	first, known := c.groups[functions[0]]
	if !known || first == "" && !noneAllowed {
		return c.without(functions[:1])
	}
	for _, a := range functions[1:] {
		if group, known := c.groups[a]; known && group != first {
			list = append(list, fmt.Sprintf("%s has IOMMU group %s, %s has %s", functions[0], cmp.Or(first, "none"), a,
				cmp.Or(group, "none")))
		}
	}
	return list
}

// together returns the functions without an IOMMU group, or with that of another card.
func (c complexes) together(functions []topology.Address) (list []string) {
	list = c.without(functions)
	of := map[string]topology.Address{}
	for _, a := range functions {
		group := c.groups[a]
		if group == "" {
			continue
		}
		if other, taken := of[group]; taken && other.Slot() != a.Slot() {
			list = append(list, fmt.Sprintf("%s and %s share IOMMU group %s", other, a, group))
		}
		of[group] = a
	}
	return list
}

func (c complexes) without(functions []topology.Address) (list []string) {
	for _, a := range functions {
		if group, known := c.groups[a]; known && group == "" {
			list = append(list, fmt.Sprintf("%s has no IOMMU group", a))
		}
	}
	return list
}
