// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"cmp"
	"io/fs"
	"slices"
	"strings"
)

// Machine is a recorded sysfs: directories, files and links. It never changes and may be shared.
type Machine struct {
	comments []string
	root     *node
}

// Comments returns the comment lines at the head of the file, without the number sign.
func (m *Machine) Comments() []string { return slices.Clone(m.comments) }

// Len returns the number of entries as the last line of the file counts them: files, links and the
// directories that hold one of them or nothing at all.
func (m *Machine) Len() int {
	n := 0
	m.root.each("", func(section) { n++ }, func(*node) { n++ })
	return n
}

// Build returns a Builder that starts from this machine. The machine itself stays as it is.
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
	children []*node     // of a directory, ascending by name; not of one that is being built

	index map[string]*node // the children of a directory that is being built
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

// open copies a node that is finished into one that is being built.
func (n *node) open() *node {
	c := &node{name: n.name, kind: n.kind, text: n.text}
	for _, child := range n.children {
		c.put(child.open())
	}
	return c
}

// put adds a child to a directory that is being built.
func (n *node) put(child *node) {
	if n.index == nil {
		n.index = map[string]*node{}
	}
	n.index[child.name] = child
}

// finish copies a node that is being built into one with its children in order.
func (n *node) finish() *node {
	c := &node{name: n.name, kind: n.kind, text: n.text, children: make([]*node, 0, len(n.index))}
	for _, child := range n.index {
		c.children = append(c.children, child.finish())
	}
	slices.SortFunc(c.children, func(a, b *node) int { return cmp.Compare(a.name, b.name) })
	return c
}

// count is how many nodes there are, without the root.
func (n *node) count() int {
	count := len(n.children)
	for _, child := range n.children {
		count += child.count()
	}
	return count
}

// section is a directory that gets a line of its own.
type section struct {
	dir     string
	entries []*node // files and links
}

// each visits every section and, after it, its files and links, in the order of the file.
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
