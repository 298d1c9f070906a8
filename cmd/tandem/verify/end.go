// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// port is the port of a VF's RDMA device; a VF has one.
const port = "1"

// End is a VF, and the GPU of its pair if there is one.
type End struct {
	Facts
	GPU *runtimeGPU
	GID int    // index of the GID for RoCE; -1 for none, as on InfiniBand
	Err string // why the VF cannot carry traffic; "" if it can
}

// runtimeGPU is a GPU as its vendor's runtime addresses it.
type runtimeGPU struct {
	Address topology.Address
	NVIDIA  bool
	ROCm    int // of an AMD GPU: its index among those of the container; -1 for unknown
}

// Facts are the properties of a pair that affect its speed. Zero values are unknown.
type Facts struct {
	GPU       string            `json:"gpu,omitempty"` // none: a VF without a GPU
	VF        string            `json:"vf"`
	RDMA      string            `json:"rdma"`
	Distance  topology.Level    `json:"distance"` // UNK without a GPU
	PCIe      topology.PCIeLink `json:"pcie"`     // of the VF's PF
	GPULanes  int               `json:"gpuLanes"` // of the GPU's PCIe link
	GPUMax    int               `json:"gpuMaxLanes"`
	Redirects []string          `json:"redirectAt"` // ports between the two whose ACS redirects traffic
	State     string            `json:"state"`      // of the port: "4: ACTIVE"
	Rate      string            `json:"rate"`       // of the port: "200 Gb/sec (4X HDR)"
	RateGbps  float64           `json:"rateGbps"`
}

// newEnd reads the facts of a VF and of its GPU; nil for none.
func newEnd(sys fs.FS, tree *topology.Tree, vf topology.Address, gpuID string, gpu *runtimeGPU) End {
	e := End{Facts: Facts{GPU: gpuID, VF: vf.String(), Distance: topology.UNK, Redirects: []string{}}, GPU: gpu,
		GID: -1}
	d, ok := tree.Device(vf)
	if !ok || len(d.RDMA) == 0 {
		e.Err = "the VF has no RDMA device in this container"
		return e
	}
	e.RDMA = d.RDMA[0]
	e.readPort(sys, d)
	if pf, ok := tree.Device(d.Function()); ok {
		e.PCIe = pf.PCIe
	}
	if gpu != nil {
		e.readPair(tree, vf, gpu.Address)
	}
	return e
}

func (e *End) readPair(tree *topology.Tree, vf, gpu topology.Address) {
	e.Distance = tree.Distance(gpu, vf).Level
	if d, ok := tree.Device(gpu); ok {
		e.GPULanes, e.GPUMax = d.PCIe.Width, d.PCIe.MaxWidth
	}
	for _, p := range tree.Ports(gpu, vf) {
		if p.Redirects {
			e.Redirects = append(e.Redirects, p.Address.String())
		}
	}
}

// readPort reads the files of the port (Documentation/ABI/stable/sysfs-class-infiniband).
func (e *End) readPort(sys fs.FS, d *topology.Device) {
	dir := path.Join(topology.PCIDevices, d.Address.String(), "infiniband", e.RDMA, "ports", port)
	e.State, e.Rate = text(sys, dir, "state"), text(sys, dir, "rate")
	e.RateGbps = parseRate(e.Rate)
	layer, err := fs.ReadFile(sys, path.Join(dir, "link_layer"))
	if err != nil {
		e.Err = fmt.Sprintf("it is not known whether %s is of InfiniBand: %v", e.RDMA, err)
		return
	}
	if strings.TrimSpace(string(layer)) != "Ethernet" {
		return
	}
	gids, err := readGIDs(sys, dir)
	if err != nil {
		e.Err = fmt.Sprintf("read the GIDs of %s: %v", e.RDMA, err)
		return
	}
	gid, ok := chooseGID(gids, d.Netdevs)
	if !ok {
		e.Err = fmt.Sprintf("%s has no RoCE v2 GID of the VF's netdev: give the netdev an IP address", e.RDMA)
		return
	}
	e.GID = gid
}

// text returns the content of a file without white space around it; "" for an unreadable file.
func text(sys fs.FS, dir, file string) string {
	content, err := fs.ReadFile(sys, path.Join(dir, file))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}

// parseRate returns the number of "200 Gb/sec (4X HDR)" or "2.5 Gb/sec (1X SDR)" in Gb/s (rate_show in
// drivers/infiniband/core/sysfs.c); 0 for other text.
func parseRate(rate string) float64 {
	number, unit, _ := strings.Cut(rate, " ")
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || !strings.HasPrefix(unit, "Gb/sec") || !(n > 0 && n < 1e6) {
		return 0
	}
	return n
}

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
