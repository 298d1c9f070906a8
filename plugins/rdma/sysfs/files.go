// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// File returns the path of a file of a PCI function, or of one of its auxiliary devices if aux names one.
func File(a topology.Address, aux string, elements ...string) string {
	return path.Join(topology.PCIDevices, a.String(), aux, path.Join(elements...))
}

// NetFile returns the path of a file of the netdevs of a PCI function, or of one of its auxiliary devices.
func NetFile(sys fs.FS, a topology.Address, aux string, elements ...string) string {
	return path.Join(topology.NetFolder(sys, File(a, aux)), path.Join(elements...))
}

// Text returns the content of a file without surrounding white space; "" if the file cannot be read.
func Text(sys fs.FS, file string) string {
	content, err := fs.ReadFile(sys, file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}

// Link returns the last element of a link's target; "" if the link does not exist.
func Link(sys fs.FS, file string) string {
	target, err := fs.ReadLink(sys, file)
	if err != nil {
		return ""
	}
	return path.Base(target)
}

// Gone reports whether the device of a file no longer exists.
func Gone(sys fs.FS, file string) bool {
	_, err := fs.Stat(sys, file)
	return topology.Gone(err)
}

// subfunction is the name of the auxiliary device of a sub-function.
var subfunction = regexp.MustCompile(`^[^.]+\.sf\.\d+$`)

// Owners returns the IDs of the devices with a netdev: the last PCI function on the path of the netdev, which
// may be an indirect parent (virtio, which the stock plugin misses and offers), and the sub-function below
// the function if any; none for a virtual netdev.
func Owners(sys fs.FS, netdev string) (ids []string) {
	target, err := fs.ReadLink(sys, NetdevLink(netdev))
	if err != nil {
		return nil
	}
	for _, element := range slices.Backward(strings.Split(target, "/")) {
		if a, err := topology.ParseAddress(element); err == nil {
			return append(ids, a.String())
		}
		if subfunction.MatchString(element) {
			ids = append(ids, element)
		}
	}
	return nil
}

// NetdevLink returns the path of the link to a netdev by its name.
func NetdevLink(netdev string) string { return "class/net/" + netdev }

// Parent returns the last PCI function on the path of a link to a device; false if there is none or the link
// does not exist.
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
