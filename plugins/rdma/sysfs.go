package rdma

import (
	"errors"
	"io/fs"
	"path"
	"strings"
	"syscall"
)

// pciDevices is where the kernel lists every PCI function, each a link to its place in the tree.
const pciDevices = "bus/pci/devices"

// inFunction names a file of a PCI function.
func inFunction(address string, elements ...string) string {
	return path.Join(pciDevices, address, path.Join(elements...))
}

// readText returns a file's content without white space around it; "" where it cannot be read, an unknown value.
func readText(sys fs.FS, file string) string {
	content, err := fs.ReadFile(sys, file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}

// readNames lists a directory, sorted; nothing where it cannot be read.
func readNames(sys fs.FS, dir string) []string {
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

// readLink returns the last element of a link's target; "" where there is no such link.
func readLink(sys fs.FS, file string) string {
	target, err := fs.ReadLink(sys, file)
	if err != nil {
		return ""
	}
	return path.Base(target)
}

// vanished reports whether an error means that a sysfs file's device is no longer there: ENOENT once the directory is
// removed, ENODEV while it is going.
func vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV)
}
