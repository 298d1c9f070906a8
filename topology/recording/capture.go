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

// Capture records a machine from its sysfs, os.DirFS("/sys") on a live node. Only the facts of config and vpd
// need privileges, those of root. Comments of the machine count the unreadable files by name. Capture returns
// an error only if it cannot list the PCI functions.
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
		c.builder.Comment(fmt.Sprintf("left out, could not be read: %s (%d)%s", name, c.left[name], hint(name)))
	}
	return c.builder.Machine()
}

// hint says who can read a file that other users cannot.
func hint(name string) string {
	if name == configFile || name == vpdFile {
		return "; root can read it"
	}
	return ""
}

type capture struct {
	sys     fs.FS
	builder *Builder
	left    map[string]int // omitted entries by name
	scrub   *scrubber
}

// functions records all PCI functions and their links in bus/pci/devices.
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
		c.facts(dir)
	}
	return nil
}

// copy records the entries below a directory that match patterns.
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

// match matches a name with the first element of each pattern. It returns whether a whole pattern matches,
// and the remaining elements of longer patterns.
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

// links records the links with recorded targets in the directories that match a pattern.
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

// leave counts an omitted entry, unless its device has disappeared.
func (c *capture) leave(name string, err error) {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		return
	}
	c.left[c.scrub.name(path.Base(name))]++
}
