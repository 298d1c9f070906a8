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

// passthrough is the driver of devices that virtual machines have.
const passthrough = "vfio-pci"

// Awaited are the GPUs of a machine that a plugin without a driver waits for, by vendor: those on PCI,
// whatever drives them but vfio-pci. There are none on a node without GPUs, where nothing is to come.
type Awaited struct {
	Vendor string // AMD or NVIDIA; "" where there are none
	Cards  []*topology.Device
}

// AwaitedIn finds them in a tree; an empty vendor is either. Of both those count of which there are more.
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

// String is "8 GPUs of NVIDIA's on PCI (the first 0000:0f:00.0, driver nvidia)".
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
