// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"fmt"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// NVMLRemedy says how NVIDIA's library gets to the plugin, for people.
const NVMLRemedy = "install NVIDIA's driver, or let the pod of the plugin see it: make nvidia the pod's " +
	"container runtime (Helm: gpu.runtimeClassName), or mount the driver's root at --driver-root-ctr-path " +
	"(Helm: gpu.driverRoot, and gpu.deviceListStrategy=cdi-cri for containers without NVIDIA's runtime)"

// passthrough is the driver of devices assigned to virtual machines.
const passthrough = "vfio-pci"

// Awaited are the GPUs for whose driver a plugin waits: those of a vendor on PCI, except those bound to
// vfio-pci. A node without such GPUs has nothing to wait for.
type Awaited struct {
	Vendor string // AMD or NVIDIA; "" for none
	Cards  []*topology.Device
}

// AwaitedIn returns the awaited GPUs of a tree. With an empty vendor, it returns those of the vendor with
// more GPUs.
func AwaitedIn(tree *topology.Tree, vendor string) Awaited {
	cards := map[string][]*topology.Device{}
	for d := range tree.Devices() {
		if v := Vendor(d); v != "" && (vendor == "" || v == vendor) && d.Driver != passthrough {
			cards[v] = append(cards[v], d)
		}
	}
	most := Awaited{}
	for _, m := range Makers {
		if len(cards[m.Vendor]) > len(most.Cards) {
			most = Awaited{m.Vendor, cards[m.Vendor]}
		}
	}
	return most
}

// String returns text such as "8 GPUs of NVIDIA's on PCI (the first 0000:0f:00.0, driver nvidia)".
func (a Awaited) String() string {
	if len(a.Cards) == 0 {
		return "no GPU on PCI"
	}
	plural, first := "s", "the first "
	if len(a.Cards) == 1 {
		plural, first = "", ""
	}
	driver := a.Cards[0].Driver
	if driver == "" {
		driver = "none"
	}
	return fmt.Sprintf("%d GPU%s of %s's on PCI (%s%s, driver %s)", len(a.Cards), plural,
		strings.ToUpper(a.Vendor), first, a.Cards[0].Address, driver)
}
