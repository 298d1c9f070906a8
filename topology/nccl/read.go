// SPDX-License-Identifier: Apache-2.0

package nccl

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/tandem-k8s/tandem/topology"
)

// Bounds of what is read; NCCL itself stops at 256 elements (NCCL_TOPO_XML_MAX_NODES).
const (
	maxBytes = 1 << 20
	maxDepth = 64
)

// File is a topology file. It never changes and may be shared.
type File struct {
	name   string
	leaves []*element // functions, in the order of the file
}

// element is a <pci>: a function, or a bridge where others are in it.
type element struct {
	address topology.Address
	parent  *element // nil below <cpu>
	bridge  bool
	numa    topology.NUMANode
	line    int
}

// Load reads the file of this name. Its errors name the file, and the line and the element that are wrong.
func Load(name string) (*File, error) {
	content, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read topology file: %w", err)
	}
	defer content.Close()
	return Read(name, content)
}

// Read reads a file; the name is for errors, which are Load's.
func Read(name string, content io.Reader) (*File, error) {
	limited := &io.LimitedReader{R: content, N: maxBytes + 1}
	r := &reader{decoder: xml.NewDecoder(limited), seen: map[topology.Address]*element{}}
	err := r.read(inside{})
	if err == nil && r.systems != 1 {
		err = fmt.Errorf("want one element <system> around all others, got %d", r.systems)
	}
	if limited.N == 0 {
		err = fmt.Errorf("it has more than %d bytes", maxBytes)
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

// reader goes through the elements once.
type reader struct {
	decoder *xml.Decoder
	systems int
	all     []*element
	seen    map[topology.Address]*element
}

// inside is where an element is.
type inside struct {
	name  string // of the element around it, "" for none
	depth int
	numa  topology.NUMANode
	pci   *element // above it; nil below <cpu>
}

// read goes through what is in an element.
func (r *reader) read(in inside) error {
	for {
		token, err := r.decoder.Token()
		if errors.Is(err, io.EOF) {
			return nil // of the file: the decoder sees to it that elements end
		}
		if err != nil {
			return err
		}
		switch t := token.(type) {
		case xml.StartElement:
			if err := r.enter(t, in); err != nil {
				return err
			}
		case xml.EndElement:
			return nil
		}
	}
}

// enter reads an element, or passes over it where NCCL does.
func (r *reader) enter(t xml.StartElement, in inside) (err error) {
	name := t.Name.Local
	switch in.name + " " + name {
	case " system":
		r.systems++
		if attribute(t, "version") != "1" {
			return r.wrong(t, "version", errors.New("want 1, the only version that there is"))
		}
	case "system cpu":
		number, err := strconv.ParseInt(attribute(t, "numaid"), 10, 16)
		if err != nil {
			return r.wrong(t, "numaid", errors.New("want the number of a NUMA node, or -1"))
		}
		in.numa = topology.Node(int(number))
	case "cpu pci", "pci pci":
		if in.depth == maxDepth {
			return r.wrong(t, "", fmt.Errorf("it is %d elements deep", maxDepth))
		}
		if in.pci, err = r.pci(t, in); err != nil {
			return err
		}
	default:
		return r.decoder.Skip()
	}
	in.name = name
	in.depth++
	return r.read(in)
}

func (r *reader) pci(t xml.StartElement, in inside) (*element, error) {
	address, err := topology.ParseAddress(attribute(t, "busid"))
	if err != nil {
		return nil, r.wrong(t, "busid", err)
	}
	if other := r.seen[address]; other != nil {
		return nil, r.wrong(t, "busid", fmt.Errorf("it is in line %d already", other.line))
	}
	e := &element{address: address, parent: in.pci, numa: in.numa}
	e.line, _ = r.decoder.InputPos()
	if in.pci != nil {
		in.pci.bridge = true
	}
	r.all, r.seen[address] = append(r.all, e), e
	return e, nil
}

// wrong says what is wrong with an element.
func (r *reader) wrong(t xml.StartElement, name string, err error) error {
	line, _ := r.decoder.InputPos()
	if name == "" {
		return fmt.Errorf("line %d: <%s>: %w", line, t.Name.Local, err)
	}
	return fmt.Errorf("line %d: <%s %s=%q>: %w", line, t.Name.Local, name, attribute(t, name), err)
}

func attribute(t xml.StartElement, name string) string {
	for _, a := range t.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}
