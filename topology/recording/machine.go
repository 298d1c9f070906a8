// SPDX-License-Identifier: Apache-2.0

// Package recording converts the part of a machine's sysfs that Tandem reads to a text file, and back without
// loss. Machine files serve as test fixtures and make bug reports reproducible.
//
//	# tandem machine v1
//	# Only the head has comments: the name of the machine and its origin.
//	[bus/pci/devices]
//	0000:08:00.0 -> ../../../devices/pci0000:07/0000:07:00.0/0000:08:00.0
//	[devices/pci0000:07/0000:07:00.0/0000:08:00.0]
//	class = 0x060400
//	config = ACS=0x001d
//	driver -> ../../../../bus/pci/drivers/pcieport
//	[devices/virtual/kfd/kfd/topology/nodes/2]
//	name = ""
//	properties =
//		cpu_cores_count 0
//		simd_count 1216
//	[module/amdgpu/drivers]
//	pci:amdgpu -> ../../../bus/pci/drivers/amdgpu
//	end 11 entries
//
// A line in brackets names a directory. The lines below list its files (name = value) and links (name ->
// target). Parent directories are implied; a directory without lines is empty.
//
// A value stands for one line of text with a newline. Several lines of text follow in lines indented by a
// tab. All other content is quoted as in Go, as are names with characters unusual in sysfs. The last line
// contains the number of directories, files and links, so that Parse detects a truncated file.
//
// The files config and vpd of a function have a notation of their own, for the facts that topology reads:
//
//   - config: "ACS=0x001d ATS" are the ACS control register and the presence of ATS; "none" is neither.
//   - vpd: "V3=1 SN=2" are keywords.
//
// [Machine.FS] returns these facts in the format of sysfs. An absent file is unknown: only root reads it.
//
// As in sysfs, links are relative, lead up first and then down, and never above the root. A machine file
// therefore cannot refer to files outside the directory to which its files are copied.
//
// A machine has limits far above those of sysfs, so that Parse needs bounded time and memory for any input.
//
// [Capture] records only the files on its list and these facts, and no MAC address, GUID, serial number or
// host name. Numbers in the order of first use replace identifiers: equal identifiers get the same number,
// and a number tells nothing else of its identifier.
package recording

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
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
	m.root.eachSection("", func(section) { n++ }, func(*node) { n++ })
	return n
}

// Build returns a Builder that starts with a copy of the machine.
func (m *Machine) Build() *Builder {
	b := NewBuilder()
	b.comments, b.nodes, b.root = slices.Clone(m.comments), m.root.countNodes(), m.root.openCopy()
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

func (n *node) findChild(name string) *node {
	i, ok := slices.BinarySearchFunc(n.children, name, func(c *node, name string) int {
		return cmp.Compare(c.name, name)
	})
	if !ok {
		return nil
	}
	return n.children[i]
}

// openCopy copies a node of a Machine for a Builder.
func (n *node) openCopy() *node {
	c := &node{name: n.name, kind: n.kind, text: n.text}
	for _, child := range n.children {
		c.putChild(child.openCopy())
	}
	return c
}

// putChild adds a child to a directory of a Builder.
func (n *node) putChild(child *node) {
	if n.index == nil {
		n.index = map[string]*node{}
	}
	n.index[child.name] = child
}

// finishCopy copies a node of a Builder for a Machine.
func (n *node) finishCopy() *node {
	c := &node{name: n.name, kind: n.kind, text: n.text, children: make([]*node, 0, len(n.index))}
	for _, child := range n.index {
		c.children = append(c.children, child.finishCopy())
	}
	slices.SortFunc(c.children, func(a, b *node) int { return cmp.Compare(a.name, b.name) })
	return c
}

// countNodes returns the number of nodes below n.
func (n *node) countNodes() int {
	count := len(n.children)
	for _, child := range n.children {
		count += child.countNodes()
	}
	return count
}

// section is a directory with a line in the machine file.
type section struct {
	dir     string
	entries []*node // files and links
}

// eachSection visits each section followed by its files and links, in the order of the machine file.
func (n *node) eachSection(dir string, visit func(section), entry func(*node)) {
	own := slices.DeleteFunc(slices.Clone(n.children), (*node).isDir)
	if len(own) > 0 || len(n.children) == 0 && dir != "" {
		visit(section{dir: cmp.Or(dir, "."), entries: own})
		for _, e := range own {
			entry(e)
		}
	}
	for _, child := range n.children {
		if child.isDir() {
			child.eachSection(strings.TrimPrefix(dir+"/"+child.name, "/"), visit, entry)
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
	m.root.eachSection("",
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

// Limits of a machine, so that Parse needs bounded time and memory for an untrusted file. For comparison, a
// server with 16 NICs of 256 VFs has about 145,000 nodes in a file of 9 MiB.
const (
	mostBytes    = 32 << 20
	mostNodes    = 250_000
	mostComments = 10_000 // lines
	longestPath  = 4096   // bytes (PATH_MAX in include/uapi/linux/limits.h)
	deepestPath  = 64     // elements; sysfs has about twenty
)

// Builder builds a machine and creates parent directories as needed. Machine returns the first error of all
// calls.
type Builder struct {
	comments []string
	root     *node
	nodes    int // below the root
	err      error
}

// NewBuilder returns a Builder for an empty machine.
func NewBuilder() *Builder { return &Builder{root: &node{kind: fs.ModeDir}} }

// Comment adds comment lines to the head of the file.
func (b *Builder) Comment(lines ...string) {
	for _, line := range lines {
		b.comments = append(b.comments, strings.Split(line, "\n")...)
	}
}

// File adds a file. Adding a name twice is an error.
func (b *Builder) File(name, content string) { b.keepError(b.addNode(name, &node{text: content})) }

// Link adds a symbolic link. The target must be relative and lead up first, then down, not above the root.
func (b *Builder) Link(name, target string) { b.keepError(b.addLink(name, target)) }

// Replace replaces the content of an existing file.
func (b *Builder) Replace(name, content string) {
	n := b.lookUp(name)
	if n == nil || n.kind != 0 {
		b.keepError(fmt.Errorf("replace %s: %w", name, fs.ErrNotExist))
		return
	}
	n.text = content
}

// Has reports whether an entry exists. Has does not follow links.
func (b *Builder) Has(name string) bool { return b.lookUp(name) != nil }

// Machine returns the machine, or the first error. Later calls of the Builder do not change the machine.
func (b *Builder) Machine() (*Machine, error) {
	if b.err != nil {
		return nil, b.err
	}
	return &Machine{comments: slices.Clone(b.comments), root: b.root.finishCopy()}, nil
}

func (b *Builder) keepError(err error) {
	if b.err == nil {
		b.err = err
	}
}

func (b *Builder) lookUp(name string) *node {
	n := b.root
	if name == "." {
		return n
	}
	for element := range strings.SplitSeq(name, "/") {
		n = n.index[element]
		if n == nil {
			return nil
		}
	}
	return n
}

// addDir creates a directory unless it exists.
func (b *Builder) addDir(name string) error {
	_, err := b.makeDir(name)
	return err
}

// makeDir returns a directory, created if necessary with its parents.
func (b *Builder) makeDir(name string) (*node, error) {
	if err := checkPath(name); err != nil {
		return nil, err
	}
	n := b.root
	if name == "." {
		return n, nil
	}
	for element := range strings.SplitSeq(name, "/") {
		next := n.index[element]
		if next == nil {
			next = &node{name: element, kind: fs.ModeDir}
			if err := b.putNode(n, next); err != nil {
				return nil, err
			}
		}
		n = next
		if !n.isDir() {
			return nil, fmt.Errorf("%s: %s is not a directory", name, element)
		}
	}
	return n, nil
}

func (b *Builder) addNode(name string, n *node) error {
	if err := checkPath(name); err != nil {
		return err
	}
	if name == "." {
		return errors.New("the root is a directory")
	}
	dir, err := b.makeDir(path.Dir(name))
	if err != nil {
		return err
	}
	n.name = path.Base(name)
	if dir.index[n.name] != nil {
		return fmt.Errorf("%s is defined twice", name)
	}
	return b.putNode(dir, n)
}

// putNode adds a node to a directory, up to mostNodes nodes of the machine.
func (b *Builder) putNode(dir, n *node) error {
	if b.nodes == mostNodes {
		return fmt.Errorf("a machine has %d files, links and directories at most", mostNodes)
	}
	b.nodes++
	dir.putChild(n)
	return nil
}

func (b *Builder) addLink(name, target string) error {
	if err := checkTarget(name, target); err != nil {
		return err
	}
	return b.addNode(name, &node{kind: fs.ModeSymlink, text: target})
}

// checkLength returns an error if a path exceeds the limits.
func checkLength(path string) error {
	switch {
	case len(path) > longestPath:
		return fmt.Errorf("the path %.40q… is longer than %d bytes", path, longestPath)
	case strings.Count(path, "/") >= deepestPath:
		return fmt.Errorf("the path %.40q… has more than %d elements", path, deepestPath)
	}
	return nil
}

// checkPath returns an error if a name is too long or does not lead straight down from the root.
func checkPath(name string) error {
	if err := checkLength(name); err != nil {
		return err
	}
	if !fs.ValidPath(name) || strings.ContainsRune(name, 0) {
		return fmt.Errorf("path %q does not lead down from the root", name)
	}
	return nil
}

// checkTarget returns an error if the target of a link is absolute, leads above the root, or goes up after
// going down, possibly through another link.
func checkTarget(name, target string) error {
	if err := checkLength(target); err != nil {
		return err
	}
	down := strings.Split(target, "/")
	up := 0
	for up < len(down) && down[up] == ".." {
		up++
	}
	rest := strings.Join(down[up:], "/")
	if rest != "" && checkPath(rest) != nil || rest == "" && up == 0 || rest == "." {
		return fmt.Errorf("link %s to %q: want a relative target that leads up first, then down", name, target)
	}
	if up > strings.Count(name, "/") {
		return fmt.Errorf("link %s to %q leads above the root", name, target)
	}
	return nil
}
