// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"errors"
	"io/fs"
	"net/netip"
	"path"
	"slices"
	"strconv"
)

// gid is an entry of a port's GID table.
type gid struct {
	index   int
	address netip.Addr
	kind    string // "RoCE v2"
	netdev  string
}

// readGIDs reads the entries with a type, which unused entries do not have (gid_attrs of
// Documentation/ABI/stable/sysfs-class-infiniband).
func readGIDs(sys fs.FS, dir string) (gids []gid, err error) {
	entries, err := fs.ReadDir(sys, path.Join(dir, "gids"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, entry := range entries {
		index, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		g := gid{index: index, kind: text(sys, dir, "gid_attrs/types/"+entry.Name()),
			netdev: text(sys, dir, "gid_attrs/ndevs/"+entry.Name())}
		g.address, err = netip.ParseAddr(text(sys, dir, "gids/"+entry.Name()))
		if err == nil && g.kind != "" {
			gids = append(gids, g)
		}
	}
	slices.SortFunc(gids, func(a, b gid) int { return a.index - b.index })
	return gids, nil
}

// chooseGID returns the index of the first RoCE v2 GID of the netdevs with the widest reach: an IPv4 address
// (::ffff:0:0/96), then a global IPv6 address, then a link-local one.
func chooseGID(gids []gid, netdevs []string) (index int, ok bool) {
	best := 0
	for _, g := range gids {
		if g.kind != "RoCE v2" || !slices.Contains(netdevs, g.netdev) {
			continue
		}
		if reach := g.reach(); reach > best {
			best, index, ok = reach, g.index, true
		}
	}
	return index, ok
}

func (g gid) reach() int {
	switch {
	case g.address.Is4In6():
		return 3
	case g.address.IsLinkLocalUnicast():
		return 1
	case g.address.IsUnspecified():
		return 0
	default:
		return 2
	}
}
