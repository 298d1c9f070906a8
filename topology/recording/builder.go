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

// Builder puts a machine together. Directories on the way to an entry are made as needed. The first error is
// kept and returned by Machine, so that building stays a list of entries.
type Builder struct {
	comments []string
	root     *node
	nodes    int // below the root
	err      error
}

// NewBuilder returns a Builder for a machine with nothing in it.
func NewBuilder() *Builder { return &Builder{root: &node{kind: fs.ModeDir}} }

// Comment adds comment lines to the head of the file.
func (b *Builder) Comment(lines ...string) {
	for _, line := range lines {
		b.comments = append(b.comments, strings.Split(line, "\n")...)
	}
}

// File adds a file with this content.
func (b *Builder) File(name, content string) { b.keep(b.add(name, &node{text: content})) }

// Link adds a symbolic link. The target has to be relative: up first, then down, and not above the root.
func (b *Builder) Link(name, target string) { b.keep(b.link(name, target)) }

// Replace gives a file that is there another content.
func (b *Builder) Replace(name, content string) {
	n := b.lookup(name)
	if n == nil || n.kind != 0 {
		b.keep(fmt.Errorf("replace %s: %w", name, fs.ErrNotExist))
		return
	}
	n.text = content
}

// Has reports whether there is an entry of this name; links on the way to it are not followed.
func (b *Builder) Has(name string) bool { return b.lookup(name) != nil }

// Machine returns what was built, or the first error. The Builder can be used on; the machine does not see
// it.
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

// dir returns an error unless there is a directory of this name afterwards.
func (b *Builder) dir(name string) error {
	_, err := b.mkdir(name)
	return err
}

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
		return fmt.Errorf("%s is there twice", name)
	}
	return b.put(dir, n)
}

// put adds to a directory, unless the machine has as much as one may have.
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

// checkPath refuses a name that does not lead straight down from the root, or is too long.
func checkPath(name string) error {
	if err := checkLength(name); err != nil {
		return err
	}
	if !fs.ValidPath(name) || strings.ContainsRune(name, 0) {
		return fmt.Errorf("path %q does not lead down from the root", name)
	}
	return nil
}

// checkTarget refuses a link that is absolute, leads above the root, or goes up again after it went down:
// through another link that could be anywhere.
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
