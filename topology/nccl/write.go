// SPDX-License-Identifier: Apache-2.0

package nccl

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

type system struct {
	XMLName xml.Name `xml:"system"`
	Version string   `xml:"version,attr"`
	CPUs    []*cpu   `xml:"cpu"`
}

type cpu struct {
	NUMA string `xml:"numaid,attr"`
	PCI  []*pci `xml:"pci"`

	node topology.NUMANode
}

type pci struct {
	BusID  topology.Address `xml:"busid,attr"`
	Class  string           `xml:"class,attr,omitempty"`
	Vendor string           `xml:"vendor,attr,omitempty"`
	Device string           `xml:"device,attr,omitempty"`
	Speed  string           `xml:"link_speed,attr,omitempty"`
	Width  int              `xml:"link_width,attr,omitempty"`
	PCI    []*pci           `xml:"pci"`

	bridge bool
}

// amd is the PCI ID of a vendor whose GPUs have RCCL.
const amd = 0x1002

// Write writes a topology file with functions of a tree, each below the switches that its card shares with
// other cards. With a GPU of AMD the version is that of RCCL, which reads no other one. Write returns an
// error if the tree lacks a function or NCCL cannot read its address.
func Write(w io.Writer, t *topology.Tree, functions []topology.Address) error {
	s := &system{Version: forNCCL}
	for _, address := range functions {
		d, ok := t.Device(address)
		if !ok {
			return fmt.Errorf("write topology file: this machine has no PCI function %s", address)
		}
		if address.Domain > 0xffff {
			return fmt.Errorf("write topology file: NCCL reads four digits of the domain, %s has more", address)
		}
		if d.Vendor == amd && d.Class.IsGPU() {
			s.Version = forRCCL
		}
		list := s.listBelow(t, leadingFunction(t, d))
		addElement(list, newPCI(d, address))
		if d.IsNIC() {
			if pf, ok := t.Device(mergedAddress(address)); ok {
				d = pf
			}
			addElement(list, newPCI(d, mergedAddress(address)))
		}
	}
	slices.SortFunc(s.CPUs, func(a, b *cpu) int { return cmp.Compare(nodeOrder(a.node), nodeOrder(b.node)) })
	for _, c := range s.CPUs {
		c.PCI = simplifyList(c.PCI)
	}
	text, err := xml.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("write topology file: %w", err)
	}
	_, err = fmt.Fprintf(w, "%s\n", bytes.ReplaceAll(text, []byte("></pci>"), []byte("/>")))
	return err
}

// mergedAddress returns the address under which NCCL looks for a NIC. By default (NCCL_IB_MERGE_VFS), NCCL
// merges all functions of a bus (ncclIbGetPciPath in src/transport/net_ib of NCCL).
func mergedAddress(a topology.Address) topology.Address {
	a.Device, a.Function = 0, 0
	return a
}

// leadingFunction returns the function whose place a function has in a file: for a NIC the first function of
// its card, because NCCL has a single place for all.
func leadingFunction(t *topology.Tree, d *topology.Device) topology.Address {
	first, ok := t.Device(d.Function().Slot())
	if ok && d.IsNIC() && first.IsNIC() {
		return first.Address
	}
	return d.Address
}

// listBelow returns the list of elements to which a function belongs, and adds its <cpu> and bridges.
func (s *system) listBelow(t *topology.Tree, address topology.Address) *[]*pci {
	place, _ := t.Place(address)
	i := slices.IndexFunc(s.CPUs, func(c *cpu) bool { return c.node == place.NUMA })
	if i < 0 {
		i = len(s.CPUs)
		s.CPUs = append(s.CPUs, &cpu{NUMA: place.NUMA.String(), node: place.NUMA})
	}
	list := &s.CPUs[i].PCI
	for _, bridge := range t.SharedBridges(address) {
		e := &pci{BusID: bridge, Class: "0x060400"}
		if d, ok := t.Device(bridge); ok {
			e = newPCI(d, bridge)
		}
		e.bridge = true
		list = &addElement(list, e).PCI
	}
	return list
}

// addElement appends an element unless the list contains its address, and returns the element in the list.
func addElement(list *[]*pci, e *pci) *pci {
	if i := slices.IndexFunc(*list, func(other *pci) bool { return other.BusID == e.BusID }); i >= 0 {
		return (*list)[i]
	}
	*list = append(*list, e)
	return e
}

// newPCI returns a <pci> with the attributes that NCCL would read in sysfs. NCCL itself reads an unknown link
// speed.
func newPCI(d *topology.Device, address topology.Address) *pci {
	e := &pci{
		BusID:  address,
		Class:  fmt.Sprintf("0x%06x", uint32(d.Class)),
		Vendor: fmt.Sprintf("0x%04x", d.Vendor),
		Device: fmt.Sprintf("0x%04x", d.Product),
	}
	if d.PCIe.MaxSpeed > 0 && d.PCIe.MaxWidth > 0 {
		e.Speed, e.Width = fmt.Sprintf("%.1f GT/s PCIe", d.PCIe.MaxSpeed), d.PCIe.MaxWidth
	}
	return e
}

// simplifyList sorts elements and omits bridges that contain only another bridge, as NCCL omits root ports.
func simplifyList(list []*pci) []*pci {
	for i, e := range list {
		e.PCI = simplifyList(e.PCI)
		if len(e.PCI) == 1 && e.PCI[0].bridge {
			list[i] = e.PCI[0]
		}
	}
	slices.SortFunc(list, func(a, b *pci) int { return a.BusID.Compare(b.BusID) })
	return list
}

// nodeOrder returns a sort key that orders the unknown NUMA node last.
func nodeOrder(n topology.NUMANode) int {
	if number, known := n.Number(); known {
		return number
	}
	return 1 << 30
}

// Apply returns a copy of a tree with the functions moved to their places in the file. All functions of a
// card move together. Apply returns an error if the file has a card in two places or none of the tree's
// functions.
func (f *File) Apply(t *topology.Tree) (*topology.Tree, error) {
	p := &placer{tree: t, roots: map[*element]string{}, elements: map[topology.Address]*element{}}
	for _, e := range f.leaves {
		if err := p.claimCard(e); err != nil {
			return nil, fmt.Errorf("apply topology file %s: %w", f.name, err)
		}
	}
	if len(p.elements) == 0 {
		return nil, fmt.Errorf("apply topology file %s: this machine has none of the file's %d PCI functions; "+
			"is the file for another machine?", f.name, len(f.leaves))
	}
	places := map[topology.Address]topology.Place{}
	for d := range t.Devices() {
		if e, ok := p.elements[d.Function().Slot()]; ok && d.Function() == d.Address {
			places[d.Address] = p.placeOf(d, e)
		}
	}
	return t.Move(places), nil
}

// placer finds the places of cards.
type placer struct {
	tree     *topology.Tree
	elements map[topology.Address]*element // by slot of the card
	roots    map[*element]string           // root complexes of the elements right below <cpu>
}

// claimCard assigns an element to the card of its function. The card of a VF is that of its PF.
func (p *placer) claimCard(e *element) error {
	d, ok := p.tree.Device(e.address)
	if !ok || isBridge(d) {
		return nil
	}
	at := d.Function().Slot()
	if other := p.elements[at]; other != nil {
		if other.parent != e.parent || other.numa != e.numa {
			return fmt.Errorf("line %d: <pci busid=%q>: same card as %s in line %d, "+
				"but below another bridge or NUMA node",
				e.line, e.address, other.address, other.line)
		}
		return nil
	}
	p.elements[at] = e
	if place, _ := p.tree.Place(d.Address); p.roots[e.topElement()] == "" {
		p.roots[e.topElement()] = place.RootComplex
	}
	return nil
}

// placeOf returns the place of a function in the file.
func (p *placer) placeOf(d *topology.Device, e *element) topology.Place {
	place, _ := p.tree.Place(d.Address)
	if !e.isWithin(place.Bridges) {
		place.RootComplex, place.Bridges = p.pathTo(e.parent)
	}
	if _, known := e.numa.Number(); known {
		place.NUMA = e.numa
	}
	return place
}

// pathTo returns the root complex and the bridges above a function, down to a bridge of the file. If the
// machine has the bridge and the file does not contradict its place, the path is that of the machine.
func (p *placer) pathTo(bridge *element) (rootComplex string, bridges []topology.Address) {
	if place, ok := p.tree.Place(bridge.address); ok && bridge.isWithin(place.Bridges) {
		return place.RootComplex, append(place.Bridges, bridge.address)
	}
	if bridge.parent == nil {
		return p.roots[bridge], []topology.Address{bridge.address}
	}
	rootComplex, bridges = p.pathTo(bridge.parent)
	return rootComplex, append(bridges, bridge.address)
}

// isWithin reports whether a list of bridges contains all elements above e.
func (e *element) isWithin(bridges []topology.Address) bool {
	for up := e.parent; up != nil; up = up.parent {
		if !slices.Contains(bridges, up.address) {
			return false
		}
	}
	return true
}

// topElement returns the element right below <cpu> that is e or contains e.
func (e *element) topElement() *element {
	for e.parent != nil {
		e = e.parent
	}
	return e
}

func isBridge(d *topology.Device) bool { return d.Class>>16 == 0x06 }
