package sysfs

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// PCIDevices is where the kernel lists every PCI function, each a link to its place in the tree.
const PCIDevices = "bus/pci/devices"

// File names a file of a PCI function or, where aux is its name, of one of the function's auxiliary devices.
func File(a topology.Address, aux string, elements ...string) string {
	return path.Join(PCIDevices, a.String(), aux, path.Join(elements...))
}

// Text returns a file's content without white space around it; "" where it cannot be read, an unknown value.
func Text(sys fs.FS, file string) string {
	content, err := fs.ReadFile(sys, file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}

// Names lists a directory, sorted; nothing where it cannot be read.
func Names(sys fs.FS, dir string) []string {
	entries, err := fs.ReadDir(sys, dir)
	if err != nil {
		return nil
	}
	names := make([]string, 0, len(entries))
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// Link returns the last element of a link's target; "" where there is no such link.
func Link(sys fs.FS, file string) string {
	target, err := fs.ReadLink(sys, file)
	if err != nil {
		return ""
	}
	return path.Base(target)
}

// Gone reports whether a file's device is no longer there.
func Gone(sys fs.FS, file string) bool {
	_, err := fs.Stat(sys, file)
	return topology.Gone(err)
}

// Parent is the PCI function that is last on the way of a link to a device; false where there is none, or no
// link.
func Parent(sys fs.FS, link string) (topology.Address, bool) {
	target, err := fs.ReadLink(sys, link)
	if err != nil {
		return topology.Address{}, false
	}
	for _, element := range slices.Backward(strings.Split(target, "/")) {
		if a, err := topology.ParseAddress(element); err == nil {
			return a, true
		}
	}
	return topology.Address{}, false
}
