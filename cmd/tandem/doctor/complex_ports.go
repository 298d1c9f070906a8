// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"io/fs"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/topology"
)

// complexes are the complexes of a machine, and the ports whose ACS is necessary for them.
type complexes struct {
	all    []topology.Complex
	tree   *topology.Tree
	usage  usage
	ports  []complexPort
	unread []topology.Address          // of ports: the kernel hides the ACS
	groups map[topology.Address]string // IOMMU groups by function, "" for none; without unknown ones
}

// complexPort is a port with a row in the table of ACS.
type complexPort struct {
	*topology.Device
	kind topology.Kind
	role role
}

// role is the place of a port.
type role string

const (
	complexRoot role = "root port"
	nicPort     role = "the NIC's downstream port" // below the upstream port that NIC and GPU share
	dmaPort     role = "the DMA function's downstream port"
	gpuPort     role = "the GPU's downstream port"
	otherPort   role = "switch port" // a downstream port of a ConnectX or BlueField elsewhere
	graceRoot   role = "root port of Grace"
	veraRoot    role = "root port of Vera"
)

// usage says to whom the devices of inline complexes belong.
type usage string

const (
	bareMetal usage = "bare metal"
	guests    usage = "guests" // virtual machines
	either    usage = ""       // no fact decides
)

func (n *Node) readComplexes() complexes {
	c := newComplexes(n.Tree)
	for _, port := range c.ports {
		if port.ACS == topology.ACSUnknown && n.readText(port.Address, "config") != "" {
			c.unread = append(c.unread, port.Address)
		}
	}
	_, err := fs.Stat(n.Sys, "kernel/iommu_groups") // also there without any group, but not in every recording
	for _, one := range c.all {
		functions := slices.Concat(one.GPUs, one.NICs)
		if one.Kind == topology.KindDMA {
			functions = append(functions, one.Function)
		}
		for _, a := range functions {
			if number := pools.ReadLink(n.Sys, pools.FunctionFile(a, "", "iommu_group")); number != "" || err == nil {
				c.groups[a] = number
			}
		}
	}
	return c
}

func newComplexes(tree *topology.Tree) complexes {
	c := complexes{
		all: tree.Complexes(), tree: tree, usage: bareMetal, groups: map[topology.Address]string{},
	}
	if len(c.all) == 0 {
		return c
	}
	for _, one := range c.all {
		switch {
		case len(one.GPUs) == 0: // a stray DMA function
		case one.Kind == topology.KindDMA:
			c.placePorts(one, dmaPort, one.Function)
			c.placePorts(one, gpuPort, one.GPUs...)
		case one.Kind == topology.KindInline:
			c.placePorts(one, nicPort, one.NICs...)
			c.placePorts(one, gpuPort, one.GPUs...)
		}
	}
	c.placeOthers(c.machineKind())
	c.usage = c.readUsage()
	slices.SortFunc(c.ports, func(a, b complexPort) int { return a.Address.Compare(b.Address) })
	return c
}

// machineKind returns the kind of the machine: with several kinds of complexes DMA, then C2C.
func (c complexes) machineKind() topology.Kind {
	for _, kind := range []topology.Kind{topology.KindDMA, topology.KindC2C} {
		hasKind := func(one topology.Complex) bool { return one.Kind == kind && len(one.GPUs) > 0 }
		if slices.ContainsFunc(c.all, hasKind) {
			return kind
		}
	}
	return topology.KindInline
}

// placePorts adds the ports above functions: the root port, and the port directly below the shared upstream
// port.
func (c *complexes) placePorts(in topology.Complex, as role, functions ...topology.Address) {
	for _, a := range functions {
		d, ok := c.tree.Device(a)
		if !ok {
			continue
		}
		bridges := d.Bridges()
		shared := slices.Index(bridges, in.Switch)
		if shared > 0 {
			c.addPort(bridges[0], in.Kind, complexRoot)
		}
		if shared >= 0 && shared+1 < len(bridges) {
			c.addPort(bridges[shared+1], in.Kind, as)
		}
	}
}

func (c *complexes) addPort(a topology.Address, kind topology.Kind, as role) {
	if d, ok := c.tree.Device(a); ok && !c.hasPort(a) {
		c.ports = append(c.ports, complexPort{d, kind, as})
	}
}

// hasPort reports whether the table of ACS judges a port.
func (c complexes) hasPort(a topology.Address) bool {
	return slices.ContainsFunc(c.ports, func(p complexPort) bool { return p.Address == a })
}

// placeOthers adds the root ports of Grace and Vera and the downstream ports of ConnectX and BlueField
// switches that are in no complex.
func (c *complexes) placeOthers(machine topology.Kind) {
	for d := range c.tree.Devices() {
		switch {
		case d.IsGracePort():
			c.addPort(d.Address, machine, graceRoot)
		case d.IsVeraPort():
			c.addPort(d.Address, machine, veraRoot)
		case d.IsNICSwitch() && c.isDownstream(d):
			c.addPort(d.Address, machine, otherPort)
		}
	}
}

// isDownstream reports whether a port of a switch is a downstream port: upstream and downstream ports
// alternate along a chain.
func (c complexes) isDownstream(port *topology.Device) bool {
	above := 0
	for _, a := range port.Bridges() {
		if d, ok := c.tree.Device(a); ok && d.IsNICSwitch() {
			above++
		}
	}
	return above%2 == 1
}

// readUsage returns the usage of the inline complexes: a function with a VFIO driver belongs to a guest, and
// only guests need ACS Direct Translated P2P. ATS alone of a NIC decides nothing.
func (c complexes) readUsage() usage {
	found := bareMetal
	for _, port := range c.ports {
		if port.role == nicPort && port.Control&topology.ACSTranslated != 0 {
			return guests
		}
	}
	for _, one := range c.all {
		if one.Kind != topology.KindInline {
			continue
		}
		for _, a := range slices.Concat(one.GPUs, one.NICs) {
			d, _ := c.tree.Device(a)
			if c.isPassed(d) {
				return guests
			}
			if d.ATS {
				found = either
			}
		}
	}
	return found
}

// isPassed reports whether a function or a VF of the function has a driver that passes it to a guest:
// vfio-pci, mlx5_vfio_pci, nvgrace_gpu_vfio_pci and others.
func (c complexes) isPassed(d *topology.Device) bool {
	if strings.Contains(d.Driver, "vfio") {
		return true
	}
	return slices.ContainsFunc(d.VFs, func(a topology.Address) bool {
		vf, ok := c.tree.Device(a)
		return ok && strings.Contains(vf.Driver, "vfio")
	})
}
