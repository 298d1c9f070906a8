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
	return &Builder{comments: slices.Clone(m.comments), root: m.root.clone()}
}

// node is one directory, file or link.
type node struct {
	name     string
	kind     fs.FileMode // fs.ModeDir, fs.ModeSymlink, or 0 for a file
	text     string      // content of a file, target of a link
	children []*node     // of a directory, ascending by name
}

func (n *node) isDir() bool { return n.kind == fs.ModeDir }

func (n *node) find(name string) (int, bool) {
	return slices.BinarySearchFunc(n.children, name, func(c *node, name string) int {
		return cmp.Compare(c.name, name)
	})
}

func (n *node) child(name string) *node {
	if i, ok := n.find(name); ok {
		return n.children[i]
	}
	return nil
}

func (n *node) clone() *node {
	c := *n
	c.children = make([]*node, len(n.children))
	for i, child := range n.children {
		c.children[i] = child.clone()
	}
	return &c
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
