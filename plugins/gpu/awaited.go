// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"fmt"
	"io/fs"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// NVMLRemedy explains how NVIDIA's library reaches the plugin, for people.
const NVMLRemedy = "install NVIDIA's driver, or let the pod of the plugin see it: make nvidia the pod's " +
	"container runtime (Helm: gpu.runtimeClassName), or mount the driver's root at --driver-root-ctr-path " +
	"(Helm: gpu.driverRoot, and gpu.deviceListStrategy=cdi-cri for containers without NVIDIA's runtime)"

// driverRemedy is NVMLRemedy for the DRA driver, which passes GPUs to containers through CDI.
const driverRemedy = "install NVIDIA's driver, or mount the driver's root into the pod of tandem-dra (Helm: " +
	"gpu.driverRoot=/, or /run/nvidia/driver if the GPU operator installs the driver)"

// passthrough is the driver of devices assigned to virtual machines.
const passthrough = "vfio-pci"

// Awaited are the GPUs with a driver that a plugin waits for: the GPUs of a vendor on PCI, except GPUs bound
// to vfio-pci. On a node without such GPUs the plugin waits for no driver.
type Awaited struct {
	Vendor string // AMD or NVIDIA; "" for none
	Cards  []*topology.Device
}

// AwaitedIn returns the awaited GPUs of a tree. An empty vendor stands for the vendor with more GPUs.
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

// OtherVendor returns an error if a tree has GPUs, and none of them is of the vendor in --vendor. An empty
// vendor stands for any.
func OtherVendor(tree *topology.Tree, vendor string) error {
	wanted, named := MakerOf(vendor)
	present, found := MakerOf(AwaitedIn(tree, "").Vendor)
	if !named || !found || len(AwaitedIn(tree, vendor).Cards) > 0 {
		return nil
	}
	return fmt.Errorf("gpu.vendor (--vendor) is %s, and the GPUs of this node are %s's: set gpu.vendor=%s "+
		"or auto", wanted.Vendor, present.Title, present.Vendor)
}

// Unpublished begins a note of the DRA driver about GPUs that are not published.
const Unpublished = "no GPU is published"

// DescribeUnpublished returns a note about the GPUs of a tree that a DRA driver with --vendor cannot publish,
// for a reason; "" without such GPUs.
func DescribeUnpublished(tree *topology.Tree, vendor string, reason error) string {
	if other := OtherVendor(tree, vendor); other != nil {
		return fmt.Sprintf("%s: %v", Unpublished, other)
	}
	if _, named := MakerOf(vendor); !named {
		vendor = ""
	}
	awaited := AwaitedIn(tree, vendor)
	if len(awaited.Cards) == 0 {
		return ""
	}
	return fmt.Sprintf("%s: %s: %s", Unpublished, awaited,
		strings.Replace(reason.Error(), NVMLRemedy, driverRemedy, 1))
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
	maker, _ := MakerOf(a.Vendor)
	return fmt.Sprintf("%d GPU%s of %s's on PCI (%s%s, driver %s)", len(a.Cards), plural, maker.Title, first,
		a.Cards[0].Address, driver)
}

// Loading reports whether a kernel module is being loaded, and may not have bound all devices yet
// (show_initstate in kernel/module/sysfs.c). Returns false for absent and built-in modules.
func Loading(sys fs.FS, module string) bool {
	state, err := fs.ReadFile(sys, "module/"+module+"/initstate")
	return err == nil && strings.TrimSpace(string(state)) == "coming"
}
