// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

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
func (b *Builder) File(name, content string) { b.keep(b.add(name, &node{text: content})) }

// Link adds a symbolic link. The target must be relative and lead up first, then down, not above the root.
func (b *Builder) Link(name, target string) { b.keep(b.link(name, target)) }

// Replace replaces the content of an existing file.
func (b *Builder) Replace(name, content string) {
	n := b.lookup(name)
	if n == nil || n.kind != 0 {
		b.keep(fmt.Errorf("replace %s: %w", name, fs.ErrNotExist))
		return
	}
	n.text = content
}

// Has reports whether an entry exists. Has does not follow links.
func (b *Builder) Has(name string) bool { return b.lookup(name) != nil }

// Machine returns the machine, or the first error. Later calls of the Builder do not change the machine.
func (b *Builder) Machine() (*Machine, error) {
	if b.err != nil {
		return nil, b.err
	}
	return &Machine{comments: slices.Clone(b.comments), root: b.root.finish()}, nil
}

func (b *Builder) keep(err error) {
	if b.err == nil {
		b.err = err
	}
}

func (b *Builder) lookup(name string) *node {
	n := b.root
	if name == "." {
		return n
	}
	for element := range strings.SplitSeq(name, "/") {
		if n = n.index[element]; n == nil {
			return nil
		}
	}
	return n
}

// dir creates a directory unless it exists.
func (b *Builder) dir(name string) error {
	_, err := b.mkdir(name)
	return err
}

// mkdir returns a directory, created if necessary with its parents.
func (b *Builder) mkdir(name string) (*node, error) {
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
			if err := b.put(n, next); err != nil {
				return nil, err
			}
		}
		if n = next; !n.isDir() {
			return nil, fmt.Errorf("%s: %s is not a directory", name, element)
		}
	}
	return n, nil
}

func (b *Builder) add(name string, n *node) error {
	if err := checkPath(name); err != nil {
		return err
	}
	if name == "." {
		return errors.New("the root is a directory")
	}
	dir, err := b.mkdir(path.Dir(name))
	if err != nil {
		return err
	}
	n.name = path.Base(name)
	if dir.index[n.name] != nil {
		return fmt.Errorf("%s is defined twice", name)
	}
	return b.put(dir, n)
}

// put adds a node to a directory, up to mostNodes nodes of the machine.
func (b *Builder) put(dir, n *node) error {
	if b.nodes == mostNodes {
		return fmt.Errorf("a machine has %d files, links and directories at most", mostNodes)
	}
	b.nodes++
	dir.put(n)
	return nil
}

func (b *Builder) link(name, target string) error {
	if err := checkTarget(name, target); err != nil {
		return err
	}
	return b.add(name, &node{kind: fs.ModeSymlink, text: target})
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
