// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// accessControl looks whether a switch port sends what GPU and NIC say to each other up to the root complex
// and back (ACS P2P request or completion redirect), although they share the switch.
func (e *examination) accessControl() {
	var redirecting, unread []string
	for _, port := range e.portsBetween() {
		switch d, ok := e.Tree.Device(port); {
		case !ok || d.ACS == topology.ACSOff:
		case d.ACS == topology.ACSRedirect:
			redirecting = append(redirecting,
				fmt.Sprintf("switch port %s: ACS redirects requests or completions", port))
		case e.text(port, "config") != "": // a sysfs without this file is a recording
			unread = append(unread,
				fmt.Sprintf("switch port %s: its configuration space is hidden beyond the first 64 bytes", port))
		}
	}
	e.findIn(redirecting, Finding{
		ID: "acs-redirect", Severity: Warning,
		Summary: fmt.Sprintf("%s traffic between GPUs and NICs to the root complex (ACS).",
			redirects(len(redirecting))),
		Why: "Although they share a switch, every transfer goes up to the CPU and back: GPUDirect " +
			"RDMA is slow.",
		Fix: []string{
			"on bare metal: ACS off in the BIOS, or at every start: setpci -s PORT ECAP_ACS+0x6.w=0000",
			"machines that pass devices to guests need ACS: there use ATS and the direct translated bit",
		},
	})
	e.findIn(unread, Finding{
		ID: "acs-redirect", Severity: Unknown,
		Summary: "Whether switches redirect traffic to the root complex (ACS) cannot be told.",
		Why:     "Redirected traffic goes up to the CPU and back, even where GPU and NIC share a switch.",
		Fix: []string{
			"run tandem doctor with CAP_SYS_ADMIN: the kernel shows others the first 64 bytes of the " +
				"configuration space",
		},
	})
}

func redirects(n int) string {
	if n == 1 {
		return "1 switch port redirects"
	}
	return fmt.Sprintf("%d switch ports redirect", n)
}

// portsBetween are the bridges of GPUs and VFs that share a switch, ascending, each once.
func (e *examination) portsBetween() []topology.Address {
	var ports []topology.Address
	for _, g := range e.GPUs {
		for _, vf := range e.VFs {
			if e.Tree.Distance(g.Address, vf.Address).Level.SameSwitch() {
				ports = append(ports, e.Tree.PathBelow(g.Address, vf.Address)...)
			}
		}
	}
	slices.SortFunc(ports, topology.Address.Compare)
	return slices.Compact(ports)
}
