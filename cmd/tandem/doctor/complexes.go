// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/topology"
)

// complexChecks are the checks of complexes of GPU and NIC. Without V3 of a DMA function its NIC is unknown.
// ATS beside ports with a wrong ACS is part of the findings about ACS.
var complexChecks = []check{
	{
		id: "complex", severity: Warning, noun: "complex",
		summary: "%s of GPU and NIC cannot be used.",
		why:     "Tandem knows no NIC near the GPUs of such a complex: the GPUs are in no pair.",
		fix: []string{
			"look for missing functions with lspci -tv",
			"a DMA function and the PFs of its NIC have the same keyword V3: lspci -vv, as root",
		},
		find: func(n *Node, f *Finding) {
			for _, one := range n.complexes.all {
				if one.Fault != "" && !one.Unread {
					f.addSeen("%s", one.Fault)
				}
			}
		},
	},
	{
		id: "complex", severity: Unknown, noun: "NIC",
		summary: "%s is not known of GPUs with a DMA function.",
		why:     "Tandem knows no NIC near such a GPU, or not all PFs of the NIC: what is unknown is in no pair.",
		fix: []string{
			"run tandem doctor as root, and the daemons as in the manifests (runAsUser: 0)",
			"still unknown to root: the vpd file is absent or damaged",
		},
		find: func(n *Node, f *Finding) {
			for _, one := range n.complexes.all {
				switch {
				case one.Unread && one.Fault != "":
					f.addSeen("%s", one.Fault)
				case one.Unread:
					f.addSeen("keyword V3 in the vpd file of a PF beside NIC %s is unknown, and so whether DMA function %s "+
						"serves the PF", one.NICs[0], one.Function)
				}
			}
		},
	},
	{each: findWrongACS},
	{
		id: "complex-ats", severity: Warning, noun: "NIC",
		summary: "%s with ATS in complexes that want none.",
		why: "A NIC with ATS sends translated requests. On bare metal and over NVLink-C2C the right values of " +
			"ACS are those for untranslated ones (rdma_topo of rdma-core).",
		fix:  []string{"mlxconfig -d ADDRESS set ATS_ENABLED=0, and a cold reset"},
		find: (*Node).findUnwantedATS,
	},
	{
		id: "complex-ats", severity: Warning, noun: "NIC",
		summary: "%s without ATS, for guests.",
		why: "Only translated requests pass from the NIC to the GPU within the switch; without ATS GPUDirect " +
			"RDMA of a guest crosses the root complex and the IOMMU, and is slow.",
		fix: []string{"mlxconfig -d ADDRESS set ATS_ENABLED=1, and a cold reset"},
		find: func(n *Node, f *Finding) {
			c := n.complexes
			for _, one := range c.all {
				for _, a := range one.NICs {
					nic, _ := c.tree.Device(a)
					if !nic.ATS && one.Kind == topology.KindInline && c.usage == guests && c.isRead(nic) {
						f.addSeen("NIC %s: no ATS in the configuration space", a)
					}
				}
			}
		},
	},
	{
		id: "complex-iommu", severity: Warning,
		summary: "IOMMU groups of GPUs and NICs do not fit their complexes.",
		why: "The GPU's driver allows GPUDirect RDMA over a DMA function only from the GPU's IOMMU group, and " +
			"functions that are independent have groups of their own.",
		fix: []string{
			"the right ACS at boot (pci=config_acs=, or the BIOS): the kernel makes the groups then, and setpci " +
				"does not change them",
			"without any group: enable the IOMMU in the firmware and the kernel",
		},
		find: func(n *Node, f *Finding) { f.Evidence = someOf(n.complexes.wrongGroups()) },
	},
}

// acsBits are wanted bits of the ACS control register in the format of the kernel's parameter
// pci=config_acs= (Documentation/admin-guide/kernel-parameters.txt): from bit 6 to bit 0 Direct Translated
// P2P, Egress Control, Upstream Forwarding, Completion Redirect, Request Redirect, Translation Blocking,
// Source Validation; "x" is any value.
type acsBits string

// applyTo returns a control register with the wanted bits.
func (b acsBits) applyTo(control uint16) uint16 {
	for i, wanted := range b {
		bit := uint16(1) << (len(b) - 1 - i)
		switch wanted {
		case '0':
			control &^= bit
		case '1':
			control |= bit
		}
	}
	return control
}

// setting is a row of the table of ACS.
type setting struct {
	kind  topology.Kind
	usage usage
	role  role
}

// wantedACS is the table of ACS. The source is NVIDIA's own program rdma_topo (rdma-core, kernel-boot).
// Without a row any value is right. The usage matters to inline complexes alone.
var wantedACS = map[setting]acsBits{
	// The root port validates no source: so the kernel makes one IOMMU group of all functions below.
	{topology.KindDMA, bareMetal, complexRoot}: "xx111x0",
	{topology.KindDMA, bareMetal, dmaPort}:     "xx110x1", // requests pass
	{topology.KindDMA, bareMetal, gpuPort}:     "xx101x1", // completions pass
	{topology.KindDMA, bareMetal, otherPort}:   "xx111x1",
	{topology.KindDMA, bareMetal, graceRoot}:   "xx111x1",
	{topology.KindDMA, bareMetal, veraRoot}:    "xx101x1",

	{topology.KindC2C, bareMetal, otherPort}: "xx111x1",
	{topology.KindC2C, bareMetal, graceRoot}: "xx111x1",
	{topology.KindC2C, bareMetal, veraRoot}:  "xx101x1",

	{topology.KindInline, bareMetal, complexRoot}: "xx000x0",
	{topology.KindInline, bareMetal, nicPort}:     "xx000x0",
	{topology.KindInline, bareMetal, gpuPort}:     "xx000x0",
	{topology.KindInline, bareMetal, otherPort}:   "xx000x0",
	{topology.KindInline, bareMetal, graceRoot}:   "xx000x0",
	{topology.KindInline, bareMetal, veraRoot}:    "xx000x0",

	{topology.KindInline, guests, complexRoot}: "xx111x1",
	{topology.KindInline, guests, nicPort}:     "1x111x1",
	{topology.KindInline, guests, gpuPort}:     "xx111x1",
	{topology.KindInline, guests, otherPort}:   "xx111x1",
	{topology.KindInline, guests, graceRoot}:   "xx111x1",
	{topology.KindInline, guests, veraRoot}:    "xx101x1",
}

// judgedUsages returns the usages for which a port of this kind is judged.
func (u usage) judgedUsages(kind topology.Kind) []usage {
	if kind != topology.KindInline {
		u = bareMetal
	}
	if u == either {
		return []usage{bareMetal, guests}
	}
	return []usage{u}
}

// isKnown reports whether the control register of a port is known. A switch port outside complexes with 0 is
// possibly a port without ACS, and from some sources only the effect is known.
func (p complexPort) isKnown() bool {
	return p.Control != 0 || p.role != otherPort && p.ACS == topology.ACSOff
}

// wrongPorts returns the ports of a kind with a control register that is right for no usage.
func (c complexes) wrongPorts(kind topology.Kind) (wrong []complexPort) {
	for _, port := range c.ports {
		if port.kind != kind || !port.isKnown() {
			continue
		}
		right := func(u usage) bool {
			return wantedACS[setting{kind, u, port.role}].applyTo(port.Control) == port.Control
		}
		if !slices.ContainsFunc(c.usage.judgedUsages(kind), right) {
			wrong = append(wrong, port)
		}
	}
	return wrong
}

// findWrongACS finds ports whose ACS is wrong for the complexes of the machine.
func findWrongACS(n *Node) (findings []Finding) {
	c := n.complexes
	for _, kind := range []topology.Kind{topology.KindDMA, topology.KindC2C, topology.KindInline} {
		wrong := c.wrongPorts(kind)
		usages := c.usage.judgedUsages(kind)
		var list []string
		for _, port := range wrong {
			var wants []string
			for _, u := range usages {
				wants = append(wants, string(wantedACS[setting{kind, u, port.role}])+usageSuffix(usages, u))
			}
			list = append(list, fmt.Sprintf("%s (%s): ACS control %#04x, wanted %s", port.Address, port.role,
				port.Control, strings.Join(wants, " or ")))
		}
		findings = append(findings, Finding{
			ID: "complex-acs", Severity: Warning,
			Summary: fmt.Sprintf("ACS of %s is wrong for complexes of kind %s.", cli.Count(len(list), "port"),
				kind),
			Evidence: someOf(list),
			Why:      acsEffect(kind, c.usage), Fix: acsFix(kind, wrong, usages),
		})
	}
	return findings
}

// usageSuffix names a usage if it is one of several.
func usageSuffix(usages []usage, u usage) string {
	if len(usages) == 1 {
		return ""
	}
	return fmt.Sprintf(" (%s)", u)
}

// acsEffect says what wrong values do to GPUDirect RDMA.
func acsEffect(kind topology.Kind, u usage) string {
	const bare = "On bare metal, redirected transfers between NIC and GPU cross the CPU's root complex " +
		"instead of the NIC's switch: GPUDirect RDMA is slow. "
	const passed = "For guests, only translated requests (ATS, and Direct Translated P2P at the NIC's port) " +
		"pass from the NIC to the GPU; all other traffic has to go to the IOMMU."
	switch {
	case kind == topology.KindDMA:
		return "Requests of the DMA function and completions of the GPU have to pass directly within their " +
			"switch, and the rest goes up to the IOMMU. Otherwise GPUDirect RDMA takes the slow way through the " +
			"root complex, or the GPU's driver does not allow it."
	case kind == topology.KindC2C:
		return "GPUDirect RDMA goes up to the CPU and over NVLink-C2C. Ports that do not send all traffic up put " +
			"several devices into one IOMMU group."
	case u == bareMetal:
		return strings.TrimSpace(bare)
	case u == guests:
		return passed
	default:
		return bare + passed
	}
}

// acsFix returns the commands with the values of each port, for each usage.
func acsFix(kind topology.Kind, wrong []complexPort, usages []usage) (fix []string) {
	for _, u := range usages {
		var flags, commands []string
		for _, port := range wrong {
			bits := wantedACS[setting{kind, u, port.role}]
			if value := bits.applyTo(port.Control); value != port.Control {
				flags = append(flags, fmt.Sprintf("%s@%s", bits, port.Address))
				commands = append(commands, fmt.Sprintf("setpci -s %s ECAP_ACS+0x6.w=%04x", port.Address, value))
			}
		}
		if len(flags) == 0 {
			continue
		}
		fix = append(fix,
			fmt.Sprintf("kernel parameter%s, Linux 6.11 or later: pci=config_acs=%q", usageSuffix(usages, u),
				strings.Join(flags, ";")),
			fmt.Sprintf("or, at each boot%s: %s", usageSuffix(usages, u), strings.Join(commands, " && ")))
		if kind == topology.KindInline && u == bareMetal {
			fix = append(fix, "or, on bare metal, disable ACS in the BIOS")
		}
	}
	if kind == topology.KindDMA && len(fix) > 0 {
		fix = append(fix, "with setpci the IOMMU groups stay those of the boot: NVIDIA's driver then also needs "+
			"NVreg_GrdmaPciTopoCheckOverride=1")
	}
	return fix
}

// findUnwantedATS finds NICs with ATS of C2C complexes, and of inline complexes that may be on bare metal.
func (n *Node) findUnwantedATS(f *Finding) {
	c := n.complexes
	undecided := c.usage == either && len(c.wrongPorts(topology.KindInline)) == 0
	for _, one := range c.all {
		unwanted := one.Kind == topology.KindC2C || one.Kind == topology.KindInline && undecided
		for _, a := range one.NICs {
			if nic, _ := c.tree.Device(a); nic.ATS && unwanted {
				f.addSeen("NIC %s: ATS in the configuration space", a)
			}
		}
	}
	if undecided {
		f.Fix = append(f.Fix, "if the devices are for guests: keep ATS, and set 1x111x1 at the NIC's downstream "+
			"port, xx111x1 at the GPU's downstream port and the root port (pci=config_acs=)")
	}
}

// isRead reports whether the configuration space of a function is known: that of the port above is.
func (c complexes) isRead(d *topology.Device) bool {
	bridges := d.Bridges()
	port, ok := c.tree.Device(bridges[len(bridges)-1])
	return ok && port.ACS != topology.ACSUnknown
}

// wrongGroups returns the functions whose IOMMU group does not fit the complex: DMA function and GPU share a
// group; GPUs and NICs of C2C complexes and of guests have groups of their own; on bare metal NIC and GPU of
// an inline complex share a group, or have none.
func (c complexes) wrongGroups() (list []string) {
	for _, one := range c.all {
		switch {
		case one.Kind == topology.KindDMA:
			list = append(list, c.findApart(append([]topology.Address{one.Function}, one.GPUs...), false)...)
		case one.Kind == topology.KindC2C, c.usage == guests:
			list = append(list, c.findTogether(slices.Concat(one.GPUs, one.NICs))...)
		case c.usage == bareMetal:
			list = append(list, c.findApart(slices.Concat(one.GPUs, one.NICs), true)...)
		}
	}
	return list
}

// findApart returns the functions with another IOMMU group than the first; none of them needs a group if that
// is allowed.
func (c complexes) findApart(functions []topology.Address, noneAllowed bool) (list []string) {
	first, known := c.groups[functions[0]]
	if !known || first == "" && !noneAllowed {
		return c.findWithoutGroup(functions[:1])
	}
	for _, a := range functions[1:] {
		if group, known := c.groups[a]; known && group != first {
			list = append(list, fmt.Sprintf("%s has IOMMU group %s, %s has %s", functions[0], cmp.Or(first, "none"), a,
				cmp.Or(group, "none")))
		}
	}
	return list
}

// findTogether returns the functions without an IOMMU group, or with that of another card.
func (c complexes) findTogether(functions []topology.Address) (list []string) {
	list = c.findWithoutGroup(functions)
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

func (c complexes) findWithoutGroup(functions []topology.Address) (list []string) {
	for _, a := range functions {
		if group, known := c.groups[a]; known && group == "" {
			list = append(list, fmt.Sprintf("%s has no IOMMU group", a))
		}
	}
	return list
}
