// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// Machine is a recorded sysfs: directories, files and links. A Machine is immutable and safe for concurrent
// use.
type Machine struct {
	comments []string
	root     *node
}

// Comments returns the comment lines at the head of the machine file, without the number sign.
func (m *Machine) Comments() []string { return slices.Clone(m.comments) }

// Len returns the number of entries, as in the last line of the machine file: files, links, and directories
// that are empty or contain a file or link.
func (m *Machine) Len() int {
	n := 0
	m.root.each("", func(section) { n++ }, func(*node) { n++ })
	return n
}

// Build returns a Builder that starts with a copy of the machine.
func (m *Machine) Build() *Builder {
	b := NewBuilder()
	b.comments, b.nodes, b.root = slices.Clone(m.comments), m.root.count(), m.root.open()
	return b
}

// node is one directory, file or link.
type node struct {
	name     string
	kind     fs.FileMode // fs.ModeDir, fs.ModeSymlink, or 0 for a file
	text     string      // content of a file, target of a link
	children []*node     // of a directory of a Machine, ascending by name

	index map[string]*node // children of a directory of a Builder, by name
}

func (n *node) isDir() bool { return n.kind == fs.ModeDir }

func (n *node) child(name string) *node {
	i, ok := slices.BinarySearchFunc(n.children, name, func(c *node, name string) int {
		return cmp.Compare(c.name, name)
	})
	if !ok {
		return nil
	}
	return n.children[i]
}

// open copies a node of a Machine for a Builder.
func (n *node) open() *node {
	c := &node{name: n.name, kind: n.kind, text: n.text}
	for _, child := range n.children {
		c.put(child.open())
	}
	return c
}

// put adds a child to a directory of a Builder.
func (n *node) put(child *node) {
	if n.index == nil {
		n.index = map[string]*node{}
	}
	n.index[child.name] = child
}

// finish copies a node of a Builder for a Machine.
func (n *node) finish() *node {
	c := &node{name: n.name, kind: n.kind, text: n.text, children: make([]*node, 0, len(n.index))}
	for _, child := range n.index {
		c.children = append(c.children, child.finish())
	}
	slices.SortFunc(c.children, func(a, b *node) int { return cmp.Compare(a.name, b.name) })
	return c
}

// count returns the number of nodes below n.
func (n *node) count() int {
	count := len(n.children)
	for _, child := range n.children {
		count += child.count()
	}
	return count
}

// section is a directory with a line in the machine file.
type section struct {
	dir     string
	entries []*node // files and links
}

// each visits each section followed by its files and links, in the order of the machine file.
func (n *node) each(dir string, visit func(section), entry func(*node)) {
	own := slices.DeleteFunc(slices.Clone(n.children), (*node).isDir)
	if len(own) > 0 || len(n.children) == 0 && dir != "" {
		visit(section{dir: cmp.Or(dir, "."), entries: own})
		for _, e := range own {
			entry(e)
		}
	}
	for _, child := range n.children {
		if child.isDir() {
			child.each(strings.TrimPrefix(dir+"/"+child.name, "/"), visit, entry)
		}
	}
}

// header is the first line of a machine file. An incompatible change of the format changes the version.
const header = "# tandem machine v1"

// WriteTo writes the machine file. Equal machines give equal bytes.
func (m *Machine) WriteTo(w io.Writer) (int64, error) {
	var out bytes.Buffer
	fmt.Fprintln(&out, header)
	for _, comment := range m.comments {
		if comment != "" {
			comment = " " + comment
		}
		fmt.Fprintln(&out, "#"+comment)
	}
	m.root.each("",
		func(s section) { fmt.Fprintf(&out, "[%s]\n", quotePath(s.dir)) },
		func(n *node) { writeEntry(&out, n) })
	fmt.Fprintf(&out, "end %d entries\n", m.Len())
	return out.WriteTo(w)
}

func writeEntry(out io.Writer, n *node) {
	name := quoteName(n.name)
	if n.kind == fs.ModeSymlink {
		fmt.Fprintf(out, "%s -> %s\n", name, quotePath(n.text))
		return
	}
	switch lines := plainLines(n.text); len(lines) {
	case 0:
		fmt.Fprintf(out, "%s = %s\n", name, strconv.Quote(n.text))
	case 1:
		fmt.Fprintf(out, "%s = %s\n", name, lines[0])
	default:
		fmt.Fprintf(out, "%s =\n\t%s\n", name, strings.Join(lines, "\n\t"))
	}
}
