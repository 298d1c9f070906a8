package doctor

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// Of include/uapi/linux/pci_regs.h.
const (
	standardHeader = 64    // what may be read without CAP_SYS_ADMIN
	extended       = 0x100 // where extended capabilities begin
	idACS          = 0x0d  // PCI_EXT_CAP_ID_ACS
	acsControl     = 6     // PCI_ACS_CTRL
	requestRedir   = 0x04  // PCI_ACS_RR
	completeRedir  = 0x08  // PCI_ACS_CR
)

// accessControl looks whether a switch port sends what GPU and NIC say to each other up to the root complex and back
// (ACS P2P request or completion redirect), although they share the switch. A sysfs without config files is a recording.
func (e *examination) accessControl() {
	var redirecting, unread []string
	for _, port := range e.portsBetween() {
		config, err := fs.ReadFile(e.Sys, path.Join(pciDevices, port.String(), "config"))
		switch control, ok := acs(config); {
		case err != nil:
		case len(config) <= standardHeader:
			unread = append(unread, fmt.Sprintf("/sys/bus/pci/devices/%s/config: %d bytes", port, len(config)))
		case ok && control&(requestRedir|completeRedir) != 0:
			redirecting = append(redirecting, fmt.Sprintf("switch port %s: ACS control %#04x", port, control))
		}
	}
	if len(redirecting) > 0 {
		e.find(Finding{
			ID: "acs-redirect", Severity: Warning,
			Summary:  fmt.Sprintf("%s traffic between GPUs and NICs to the root complex (ACS).", redirects(len(redirecting))),
			Evidence: some(redirecting),
			Why:      "Although they share a switch, every transfer goes up to the CPU and back: GPUDirect RDMA is slow.",
			Fix: []string{
				"on bare metal: ACS off in the BIOS, or at every start: setpci -s PORT ECAP_ACS+0x6.w=0000",
				"machines that pass devices to guests need ACS: there use ATS and the direct translated bit",
			},
		})
	}
	if len(unread) > 0 {
		e.find(Finding{
			ID: "acs-redirect", Severity: Unknown,
			Summary:  "Whether switches redirect traffic to the root complex (ACS) cannot be told.",
			Evidence: some(unread),
			Why:      "Redirected traffic goes up to the CPU and back, even where GPU and NIC share a switch.",
			Fix:      []string{"run tandem doctor with CAP_SYS_ADMIN: the kernel shows others the first 64 bytes of the configuration space"},
		})
	}
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
			a, okA := e.Tree.Device(g.Address)
			b, okB := e.Tree.Device(vf.Address)
			if okA && okB && e.Tree.Distance(g.Address, vf.Address).Level.SameSwitch() {
				ports = append(ports, different(a.Bridges(), b.Bridges())...)
			}
		}
	}
	slices.SortFunc(ports, topology.Address.Compare)
	return slices.Compact(ports)
}

// different are the bridges of two chains that are not common to both.
func different(a, b []topology.Address) []topology.Address {
	common := 0
	for common < min(len(a), len(b)) && a[common] == b[common] {
		common++
	}
	return slices.Concat(a[common:], b[common:])
}

// acs returns the ACS control register from a configuration space; false where there is none.
func acs(config []byte) (uint16, bool) {
	const header = 4
	for at := extended; at >= extended && at+acsControl+2 <= len(config); {
		capability := binary.LittleEndian.Uint32(config[at : at+header])
		if capability&0xffff == idACS {
			return binary.LittleEndian.Uint16(config[at+acsControl:]), true
		}
		next := int(capability >> 20)
		if next <= at {
			break // the list goes up; anything else is its end
		}
		at = next
	}
	return 0, false
}
