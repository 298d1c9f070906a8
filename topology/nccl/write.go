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
	Version int      `xml:"version,attr"`
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

// Write writes a file with these functions of a tree, each below the switches that it shares with other
// cards. It fails where the tree lacks one, and where NCCL cannot read its address.
func Write(w io.Writer, t *topology.Tree, functions []topology.Address) error {
	s := &system{Version: 1}
	for _, address := range functions {
		d, ok := t.Device(address)
		if !ok {
			return fmt.Errorf("write topology file: this machine has no PCI function %s", address)
		}
		if address.Domain > 0xffff {
			return fmt.Errorf("write topology file: the domain of %s has more than the four digits that NCCL reads",
				address)
		}
		list := s.below(t, address)
		add(list, newPCI(d, address))
		if d.Class.IsNetwork() {
			if pf, ok := t.Device(merged(address)); ok {
				d = pf
			}
			add(list, newPCI(d, merged(address)))
		}
	}
	slices.SortFunc(s.CPUs, func(a, b *cpu) int { return cmp.Compare(order(a.node), order(b.node)) })
	for _, c := range s.CPUs {
		c.PCI = tidy(c.PCI)
	}
	text, err := xml.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("write topology file: %w", err)
	}
	_, err = fmt.Fprintf(w, "%s\n", bytes.ReplaceAll(text, []byte("></pci>"), []byte("/>")))
	return err
}

// merged is where NCCL looks for a NIC: with NCCL_IB_MERGE_VFS, which is on by default, the functions of one
// bus are one device (ncclIbGetPciPath in src/transport/net_ib of NCCL).
func merged(a topology.Address) topology.Address {
	a.Device, a.Function = 0, 0
	return a
}

// below is the list that a function belongs to.
func (s *system) below(t *topology.Tree, address topology.Address) *[]*pci {
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
		list = &add(list, e).PCI
	}
	return list
}

// add adds an element, unless it is there.
func add(list *[]*pci, e *pci) *pci {
	if i := slices.IndexFunc(*list, func(other *pci) bool { return other.BusID == e.BusID }); i >= 0 {
		return (*list)[i]
	}
	*list = append(*list, e)
	return e
}

// newPCI tells of a function what NCCL would read in sysfs; what is not known is left for it to read.
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

// tidy sorts elements, and leaves out bridges with nothing but one other bridge in them: NCCL has no root
// ports either.
func tidy(list []*pci) []*pci {
	for i, e := range list {
		e.PCI = tidy(e.PCI)
		if len(e.PCI) == 1 && e.PCI[0].bridge {
			list[i] = e.PCI[0]
		}
	}
	slices.SortFunc(list, func(a, b *pci) int { return a.BusID.Compare(b.BusID) })
	return list
}

// order puts the unknown NUMA node last.
func order(n topology.NUMANode) int {
	if number, known := n.Number(); known {
		return number
	}
	return 1 << 30
}
