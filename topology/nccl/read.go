// SPDX-License-Identifier: Apache-2.0

// Package nccl reads and writes topology files of NCCL and RCCL (NCCL_TOPO_FILE; src/graph/xml.cc of NCCL).
// A topology file lists the PCI functions below each switch of each NUMA node. Cloud providers such as Azure
// ship topology files for guests with a flat PCI tree:
//
//	<system version="1">
//	  <cpu numaid="0" affinity="…" arch="x86_64" …>
//	    <pci busid="ffff:ff:01.0" class="0x060400" …>       a switch; here hidden from the guest
//	      <pci busid="0001:00:00.0" class="0x030200" …/>    a GPU; NCCL's own dumps add <gpu>
//	      <pci busid="0101:00:00.0" class="0x020700" …/>    a NIC; NCCL's own dumps add <nic> with <net>
//
// The version of a file of RCCL is 2. [Read] reads the elements system, cpu (numaid) and pci (busid) and,
// like NCCL, skips all others.
//
// [File.Apply] moves the functions of a tree to their places in the file. A function stays in place if the
// file does not list it, or if the tree already has all its bridges of the file above it.
//
// [Write] writes a tree as a file. NCCL itself adds <gpu>, <nic>, <net> and the CPU attributes.
package nccl

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"github.com/tandem-k8s/tandem/topology"
)

// Limits of a file. NCCL itself reads at most 256 elements (NCCL_TOPO_XML_MAX_NODES).
const (
	maxBytes = 1 << 20
	maxDepth = 64
)

// Versions of files (NCCL_TOPO_XML_VERSION in src/graph/xml.h of each library). RCCL adds attributes of GPUs.
const (
	forNCCL = "1"
	forRCCL = "2"
)

// File is a topology file. A File is immutable and safe for concurrent use.
type File struct {
	name   string
	leaves []*element // functions, in the order of the file
}

// element is a <pci>: a bridge if other elements are in it, otherwise a function.
type element struct {
	address topology.Address
	parent  *element // nil below <cpu>
	bridge  bool
	numa    topology.NUMANode
	line    int
}

// Load reads the topology file of this name. Errors name the file, the line and the element.
func Load(name string) (*File, error) {
	content, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read topology file: %w", err)
	}
	defer content.Close()
	return Read(name, content)
}

// Read reads a topology file. The name is for errors, as in [Load].
func Read(name string, content io.Reader) (*File, error) {
	limited := &io.LimitedReader{R: content, N: maxBytes + 1}
	r := &reader{decoder: xml.NewDecoder(limited), byAddress: map[topology.Address]*element{}}
	err := r.readInside(position{})
	if err == nil && r.systems != 1 {
		err = fmt.Errorf("want one element <system> around all others, got %d", r.systems)
	}
	if limited.N == 0 {
		err = fmt.Errorf("larger than %d bytes", maxBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("read topology file %s: %w", name, err)
	}
	f := &File{name: name}
	for _, e := range r.all {
		if !e.bridge {
			f.leaves = append(f.leaves, e)
		}
	}
	return f, nil
}

// reader collects the elements of a file.
type reader struct {
	decoder   *xml.Decoder
	systems   int // number of <system> elements
	all       []*element
	byAddress map[topology.Address]*element
}

// position is the place of an element in the file.
type position struct {
	name  string // of the surrounding element, "" for none
	depth int    // number of surrounding elements
	numa  topology.NUMANode
	pci   *element // the surrounding <pci>; nil right below <cpu>
}

// readInside reads the elements inside an element.
func (r *reader) readInside(in position) error {
	for {
		token, err := r.decoder.Token()
		if errors.Is(err, io.EOF) {
			return nil // the decoder returns an error for unclosed elements
		}
		if err != nil {
			return err
		}
		switch t := token.(type) {
		case xml.StartElement:
			if err := r.enterElement(t, in); err != nil {
				return err
			}
		case xml.EndElement:
			return nil
		}
	}
}

// enterElement reads an element, or skips an element that NCCL skips.
func (r *reader) enterElement(t xml.StartElement, in position) (err error) {
	name := t.Name.Local
	switch in.name + " " + name {
	case " system":
		r.systems++
		if version := attributeOf(t, "version"); version != forNCCL && version != forRCCL {
			return r.attributeError(t, "version", errors.New("want 1 (NCCL) or 2 (RCCL)"))
		}
	case "system cpu":
		number, err := strconv.ParseInt(attributeOf(t, "numaid"), 10, 16)
		if err != nil {
			return r.attributeError(t, "numaid", errors.New("want the number of a NUMA node, or -1"))
		}
		in.numa = topology.Node(int(number))
	case "cpu pci", "pci pci":
		if in.depth == maxDepth {
			return r.attributeError(t, "", fmt.Errorf("nesting exceeds %d elements", maxDepth))
		}
		in.pci, err = r.readPCI(t, in)
		if err != nil {
			return err
		}
	default:
		return r.decoder.Skip()
	}
	in.name = name
	in.depth++
	return r.readInside(in)
}

// readPCI records a <pci>.
func (r *reader) readPCI(t xml.StartElement, in position) (*element, error) {
	address, err := topology.ParseAddress(attributeOf(t, "busid"))
	if err != nil {
		return nil, r.attributeError(t, "busid", err)
	}
	if other := r.byAddress[address]; other != nil {
		return nil, r.attributeError(t, "busid", fmt.Errorf("duplicate of line %d", other.line))
	}
	e := &element{address: address, parent: in.pci, numa: in.numa}
	e.line, _ = r.decoder.InputPos()
	if in.pci != nil {
		in.pci.bridge = true
	}
	r.all, r.byAddress[address] = append(r.all, e), e
	return e, nil
}

// attributeError returns an error with line, element and, unless the name is empty, the attribute.
func (r *reader) attributeError(t xml.StartElement, name string, err error) error {
	line, _ := r.decoder.InputPos()
	if name == "" {
		return fmt.Errorf("line %d: <%s>: %w", line, t.Name.Local, err)
	}
	return fmt.Errorf("line %d: <%s %s=%q>: %w", line, t.Name.Local, name, attributeOf(t, name), err)
}

func attributeOf(t xml.StartElement, name string) string {
	for _, a := range t.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// Function is a PCI function of a topology file, at its place: below the <pci> elements around it.
type Function struct {
	Address topology.Address   `json:"address"`
	NUMA    topology.NUMANode  `json:"numa"`
	Bridges []topology.Address `json:"bridges"` // from the top down
}

// Functions returns the functions of the file, in its order. Bridges are not among them.
func (f *File) Functions() []Function {
	all := make([]Function, len(f.leaves))
	for i, leaf := range f.leaves {
		all[i] = Function{Address: leaf.address, NUMA: leaf.numa}
		for up := leaf.parent; up != nil; up = up.parent {
			all[i].Bridges = append(all[i].Bridges, up.address)
		}
		slices.Reverse(all[i].Bridges)
	}
	return all
}
