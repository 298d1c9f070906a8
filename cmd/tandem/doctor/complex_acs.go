// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/finding"
	"github.com/tandem-k8s/tandem/cmd/tandem/document"
	"github.com/tandem-k8s/tandem/topology"
)

// acsBits are wanted bits of the ACS control register in the format of the kernel's parameter
// pci=config_acs= (Documentation/admin-guide/kernel-parameters.txt): from bit 6 to bit 0 Direct Translated
// P2P, Egress Control, Upstream Forwarding, Completion Redirect, Request Redirect, Translation Blocking,
// Source Validation; "x" is any value.
type acsBits string

// set returns a control register with the wanted bits.
func (b acsBits) set(control uint16) uint16 {
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

// usages returns the usages for which a port of this kind is judged.
func (u usage) usages(kind topology.Kind) []usage {
	switch {
	case kind != topology.KindInline:
		return []usage{bareMetal}
	case u == either:
		return []usage{bareMetal, guests}
	default:
		return []usage{u}
	}
}

// isKnown reports whether the control register of a port is known. A switch port outside complexes with 0 is
// possibly a port without ACS, and from some sources only the effect is known.
func (p complexPort) isKnown() bool {
	switch {
	case p.Control != 0:
		return true
	case p.role == otherPort:
		return false
	default:
		return p.ACS == topology.ACSOff
	}
}

// wrongPorts returns the ports of a kind with a control register that is right for no usage.
func (c complexes) wrongPorts(kind topology.Kind) (wrong []complexPort) {
	for _, port := range c.ports {
		if port.kind != kind || !port.isKnown() {
			continue
		}
		right := func(u usage) bool {
			return wantedACS[setting{kind, u, port.role}].set(port.Control) == port.Control
		}
		if !slices.ContainsFunc(c.usage.usages(kind), right) {
			wrong = append(wrong, port)
		}
	}
	return wrong
}

// complexACS finds ports whose ACS is wrong for the complexes of the machine.
func complexACS(c complexes) (findings []Finding) {
	for _, kind := range []topology.Kind{topology.KindDMA, topology.KindC2C, topology.KindInline} {
		wrong := c.wrongPorts(kind)
		usages := c.usage.usages(kind)
		var list []string
		for _, port := range wrong {
			var wants []string
			for _, u := range usages {
				wants = append(wants, string(wantedACS[setting{kind, u, port.role}])+suffix(usages, u))
			}
			list = append(list, fmt.Sprintf("%s (%s): ACS control %#04x, wanted %s", port.Address, port.role,
				port.Control, strings.Join(wants, " or ")))
		}
		findings = append(findings, finding.OfSome(list, Finding{
			ID: "complex-acs", Severity: Warning,
			Summary: fmt.Sprintf("ACS of %s is wrong for complexes of kind %s.", document.Count(len(list), "port"),
				kind),
			Why: acsEffect(kind, c.usage), Fix: acsFix(kind, wrong, usages),
		})...)
	}
	return findings
}

func suffix(usages []usage, u usage) string {
	switch {
	case len(usages) == 1:
		return ""
	case u == guests:
		return " (guests)"
	default:
		return " (bare metal)"
	}
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
			if value := bits.set(port.Control); value != port.Control {
				flags = append(flags, fmt.Sprintf("%s@%s", bits, port.Address))
				commands = append(commands, fmt.Sprintf("setpci -s %s ECAP_ACS+0x6.w=%04x", port.Address, value))
			}
		}
		if len(flags) == 0 {
			continue
		}
		fix = append(fix,
			fmt.Sprintf("kernel parameter%s, Linux 6.11 or later: pci=config_acs=%q", suffix(usages, u),
				strings.Join(flags, ";")),
			fmt.Sprintf("or, at each boot%s: %s", suffix(usages, u), strings.Join(commands, " && ")))
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
