// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Names returns the sorted entries of a directory; nil if the directory cannot be read.
func Names(sys fs.FS, dir string) []string {
	entries, err := fs.ReadDir(sys, dir)
	if err != nil {
		return nil
	}
	return namesOf(entries)
}

func namesOf(entries []fs.DirEntry) []string {
	names := make([]string, 0, len(entries))
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// NetFolder returns the directory with the netdevs of the device in a directory: net, or net of the virtio
// device of a function bound to virtio-pci.
func NetFolder(sys fs.FS, device string) string { return path.Join(device, netFolder(sys, device)) }

func netFolder(sys fs.FS, device string) string {
	const folder = "net"
	driver, err := fs.ReadLink(sys, path.Join(device, "driver"))
	if err != nil || path.Base(driver) != "virtio-pci" {
		return folder
	}
	for _, name := range Names(sys, device) {
		below := path.Join(name, folder)
		if _, err := fs.Stat(sys, path.Join(device, below)); strings.HasPrefix(name, "virtio") && err == nil {
			return below
		}
	}
	return folder
}

// Netdevs returns the names of the netdevs of the device in a directory that can be passed on, sorted.
func Netdevs(sys fs.FS, device string) []string {
	return PassableNames(Names(sys, NetFolder(sys, device)))
}

// RDMADevices returns the names of the RDMA devices of the device in a directory that can be passed on,
// sorted.
func RDMADevices(sys fs.FS, device string) []string {
	return PassableNames(Names(sys, path.Join(device, "infiniband")))
}

// PassableNames returns the names that can be passed on: see IsPassable.
func PassableNames(names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return !IsPassable(name) })
}

// longestName is the maximum length of the name of an RDMA device, longer than that of a netdev
// (IB_DEVICE_NAME_MAX in include/uapi/rdma/ib_user_verbs.h, IFNAMSIZ in include/uapi/linux/if.h).
const longestName = 63

// IsPassable reports whether the name of a netdev or RDMA device can be passed on to containers, files and
// messages. A pod with NET_ADMIN renames the devices in its network namespace, and the kernel returns them to
// the node under these names: any bytes except "/" and, for netdevs, ":" and white space (dev_valid_name in
// net/core/dev.c). A passable name is text without the separators and wildcards of NCCL, UCX and NVSHMEM.
func IsPassable(name string) bool {
	plain := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_-.+@", r)
	}
	return name != "" && len(name) <= longestName && utf8.ValidString(name) &&
		!strings.ContainsAny(name[:1], "-.") && strings.IndexFunc(name, func(r rune) bool { return !plain(r) }) < 0
}
