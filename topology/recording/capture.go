// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"syscall"
)

const pciDevices = "bus/pci/devices"

// Capture records a machine from its sysfs, os.DirFS("/sys") on a live node. It needs no privilege: a file
// that cannot be read is left out, and a comment in the result counts how many of each name were. Only a
// machine whose PCI functions cannot be listed is an error.
func Capture(sys fs.FS) (*Machine, error) {
	c := &capture{sys: sys, builder: NewBuilder(), left: map[string]int{}, scrub: newScrubber()}
	if err := c.functions(); err != nil {
		return nil, fmt.Errorf("capture machine: %w", err)
	}
	c.copy(".", machinePatterns)
	for _, pattern := range linkDirs {
		c.links(".", pattern)
	}
	for _, name := range slices.Sorted(maps.Keys(c.left)) {
		c.builder.Comment(fmt.Sprintf("left out, could not be read: %s, %d times", name, c.left[name]))
	}
	return c.builder.Machine()
}

type capture struct {
	sys     fs.FS
	builder *Builder
	left    map[string]int // entries left out, by name
	scrub   *scrubber
}

// functions records every PCI function at its place in the tree, with the link that names it.
func (c *capture) functions() error {
	entries, err := fs.ReadDir(c.sys, pciDevices)
	if err != nil {
		return fmt.Errorf("list PCI devices: %w", err)
	}
	for _, entry := range entries {
		name := path.Join(pciDevices, entry.Name())
		target, err := fs.ReadLink(c.sys, name)
		if err != nil || checkTarget(name, target) != nil {
			c.leave(name, err)
			continue
		}
		dir := path.Join(pciDevices, target)
		c.keep(name, c.builder.link(name, target))
		c.keep(dir, c.builder.dir(dir))
		c.copy(dir, pciPatterns)
	}
	return nil
}

// copy records what the patterns name below a directory.
func (c *capture) copy(dir string, patterns []string) {
	entries, err := fs.ReadDir(c.sys, dir)
	if err != nil {
		c.leave(dir, err)
		return
	}
	for _, entry := range entries {
		whole, deeper := match(patterns, entry.Name())
		name := path.Join(dir, entry.Name())
		if whole {
			c.entry(name, entry.Type())
		}
		if len(deeper) > 0 && entry.IsDir() {
			c.copy(name, deeper)
		}
	}
}

// match compares a name with the first element of each pattern: whether a pattern ends there, and what is
// left of the others.
func match(patterns []string, name string) (whole bool, deeper []string) {
	for _, pattern := range patterns {
		first, rest, more := strings.Cut(pattern, "/")
		ok, err := path.Match(first, name)
		switch {
		case err != nil || !ok:
		case more:
			deeper = append(deeper, rest)
		default:
			whole = true
		}
	}
	return whole, deeper
}

// entry records one file, link or empty directory.
func (c *capture) entry(name string, kind fs.FileMode) {
	as := c.scrub.name(name)
	switch kind {
	case fs.ModeDir:
		c.keep(name, c.builder.dir(as))
	case fs.ModeSymlink:
		target, err := fs.ReadLink(c.sys, name)
		if err == nil {
			err = c.builder.link(as, c.scrub.name(target))
		}
		c.keep(name, err)
	default:
		content, err := fs.ReadFile(c.sys, name)
		if err == nil {
			err = c.builder.add(as, &node{text: c.scrub.content(name, string(content))})
		}
		c.keep(name, err)
	}
}

// links records, in the directories that a pattern names, the links that lead to something recorded.
func (c *capture) links(dir, pattern string) {
	first, rest, more := strings.Cut(pattern, "/")
	entries, err := fs.ReadDir(c.sys, dir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		ok, err := path.Match(first, entry.Name())
		name := path.Join(dir, entry.Name())
		switch {
		case err != nil || !ok || !entry.IsDir():
		case more:
			c.links(name, rest)
		default:
			c.linksIn(name)
		}
	}
}

func (c *capture) linksIn(dir string) {
	entries, err := fs.ReadDir(c.sys, dir)
	if err != nil {
		c.leave(dir, err)
		return
	}
	for _, entry := range entries {
		name := path.Join(dir, entry.Name())
		if entry.Type() != fs.ModeSymlink {
			continue
		}
		target, err := fs.ReadLink(c.sys, name)
		if err == nil && c.builder.Has(path.Join(dir, c.scrub.name(target))) {
			c.entry(name, fs.ModeSymlink)
		}
	}
}

func (c *capture) keep(name string, err error) {
	if err != nil {
		c.leave(name, err)
	}
}

// leave counts an entry that could not be recorded. One whose device went away meanwhile is simply not there.
func (c *capture) leave(name string, err error) {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		return
	}
	c.left[path.Base(name)]++
}
