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
	err := r.read()
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
	open    []string   // names of the elements that it is in
	above   []*element // of those, the <pci>
	numa    topology.NUMANode
	all     []*element
	seen    map[topology.Address]*element
}

func (r *reader) read() error {
	for {
		token, err := r.decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		switch t := token.(type) {
		case xml.StartElement:
			err = r.start(t)
		case xml.EndElement:
			r.end(t)
		}
		if err != nil {
			return err
		}
	}
	if r.systems != 1 {
		return fmt.Errorf("want one element <system> around all others, got %d", r.systems)
	}
	return nil
}

// start enters an element, or passes over it where NCCL does.
func (r *reader) start(t xml.StartElement) error {
	parent := ""
	if len(r.open) > 0 {
		parent = r.open[len(r.open)-1]
	}
	known := map[string]bool{" system": true, "system cpu": true, "cpu pci": true, "pci pci": true}
	name := t.Name.Local
	if !known[parent+" "+name] {
		return r.decoder.Skip()
	}
	if len(r.open) == maxDepth {
		return r.wrong(t, "", fmt.Errorf("it is %d elements deep", maxDepth))
	}
	r.open = append(r.open, name)
	switch name {
	case "system":
		r.systems++
		if version := attribute(t, "version"); version != "1" {
			return r.wrong(t, "version", fmt.Errorf("want 1, the only version that there is"))
		}
	case "cpu":
		return r.cpu(t)
	case "pci":
		return r.pci(t)
	}
	return nil
}

func (r *reader) end(t xml.EndElement) {
	if t.Name.Local == "pci" {
		r.above = r.above[:len(r.above)-1]
	}
	r.open = r.open[:len(r.open)-1]
}

func (r *reader) cpu(t xml.StartElement) error {
	number, err := strconv.ParseInt(attribute(t, "numaid"), 10, 16)
	if err != nil {
		return r.wrong(t, "numaid", errors.New("want the number of a NUMA node, or -1"))
	}
	r.numa = topology.Node(int(number))
	return nil
}

func (r *reader) pci(t xml.StartElement) error {
	address, err := topology.ParseAddress(attribute(t, "busid"))
	if err != nil {
		return r.wrong(t, "busid", err)
	}
	if other := r.seen[address]; other != nil {
		return r.wrong(t, "busid", fmt.Errorf("it is in line %d already", other.line))
	}
	e := &element{address: address, numa: r.numa}
	e.line, _ = r.decoder.InputPos()
	if n := len(r.above); n > 0 {
		e.parent = r.above[n-1]
		e.parent.bridge = true
	}
	r.above, r.all, r.seen[address] = append(r.above, e), append(r.all, e), e
	return nil
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
