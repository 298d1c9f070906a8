// SPDX-License-Identifier: Apache-2.0

package topology

import "slices"

// Redirected returns the number of a function's SharedBridges, from the top, above a port that redirects the
// function's traffic: traffic to other devices below these bridges takes the way through the host bridge. The
// traffic of a GPU counts if a NIC below the bridge sends untranslated requests. [Tree.Ports] tells about a
// single pair.
func (t *Tree) Redirected(a Address) int { return t.redirected[a] }

// aboveRedirect returns the number of shared bridges above the lowest redirecting bridge of a function.
func (t *Tree) aboveRedirect(d *Device, shared []Address) int {
	for n := len(shared); n > 0; n-- {
		at := shared[n-1]
		way := t.below(d, at)
		translated := t.translated[at]
		if t.sendsRequests(d) {
			translated = t.isTranslated(d, way)
		}
		if slices.ContainsFunc(way, func(port Address) bool { return t.redirects(port, d, translated) }) {
			return n
		}
	}
	return 0
}

// below returns the part of a function's chain below a bridge of the chain.
func (t *Tree) below(d *Device, bridge Address) []Address {
	chain := t.pluggedIn(d).bridges
	return chain[slices.Index(chain, bridge)+1:]
}

// redirects reports whether a port redirects a function's part of GPUDirect RDMA: the requests of a NIC, the
// completions of a GPU. Translated requests and their completions take no detour.
func (t *Tree) redirects(at Address, of *Device, translated bool) bool {
	port, ok := t.devices[at]
	switch {
	case !ok || port.ACS != ACSRedirect, t.isInner(port, of):
		return false
	case port.Control == 0: // only the effect is known
		return true
	case translated:
		return false
	case t.sendsRequests(of):
		return port.Control&ACSRequests != 0
	default:
		return port.Control&ACSCompletions != 0
	}
}

// sendsRequests reports whether a function's part of GPUDirect RDMA are the requests: a DMA function, or a
// NIC, whatever the class of its DMA function.
func (t *Tree) sendsRequests(d *Device) bool {
	if pf, ok := t.devices[d.PF]; ok && d.IsVF() {
		d = pf
	}
	return d.Class.IsNetwork() || d.isDMAFunction()
}

// isInner reports whether a port is in a part of a NIC's switch that leads to one card alone, as the part
// above the GPU of a DMA complex, whose ports have the kernel's ACS. What such a port hands up leaves this
// part in any case, and the port of the part above decides.
func (t *Tree) isInner(port, of *Device) bool {
	if len(port.bridges) == 0 {
		return false
	}
	above, ok := t.devices[port.bridges[len(port.bridges)-1]]
	return ok && above.IsNICSwitch() && !slices.Contains(t.pcie(of.Address), above.Address)
}

// isTranslated reports whether a NIC sends translated requests that take no detour on a way up (ACS Direct
// Translated P2P): the NIC has ATS, and the port right above and all redirecting ports allow it.
func (t *Tree) isTranslated(nic *Device, way []Address) bool {
	if len(way) == 0 || !t.pluggedIn(nic).ATS {
		return false
	}
	for i, a := range way {
		port, ok := t.devices[a]
		redirects := ok && port.ACS == ACSRedirect && (port.Control == 0 || port.Control&ACSRequests != 0)
		if (redirects || i == len(way)-1) && (!ok || port.Control&ACSTranslated == 0) {
			return false
		}
	}
	return true
}

// findTranslated finds for each bridge with NICs below whether all of these send translated requests up to
// the bridge.
func (t *Tree) findTranslated() {
	for _, d := range t.devices {
		if !d.IsNIC() || d.Function() != d.Address {
			continue
		}
		for _, bridge := range t.shared[d.Address] {
			all, seen := t.translated[bridge]
			t.translated[bridge] = (all || !seen) && t.isTranslated(d, t.below(d, bridge))
		}
	}
}
