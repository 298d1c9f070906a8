// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// port is the port of a VF's RDMA device; a VF has one.
const port = "1"

// End is a VF, and the GPU of its pair if there is one.
type End struct {
	Facts
	GPU *GPU
	GID int    // index of the GID for RoCE; -1 for none, as on InfiniBand
	Err string // why the VF cannot carry traffic; "" if it can
}

// GPU is a GPU as its vendor's runtime addresses it.
type GPU struct {
	Address topology.Address
	NVIDIA  bool
	ROCm    int // of an AMD GPU: its index among those of the container; -1 for unknown
}

// Facts are the properties of a pair that affect its speed. Zero values are unknown.
type Facts struct {
	GPU       string         `json:"gpu,omitempty"` // none: a VF without a GPU
	VF        string         `json:"vf"`
	RDMA      string         `json:"rdma"`
	Distance  topology.Level `json:"distance"` // UNK without a GPU
	PCIe      Link           `json:"pcie"`     // of the VF's PF
	GPULanes  int            `json:"gpuLanes"` // of the GPU's PCIe link
	GPUMax    int            `json:"gpuMaxLanes"`
	Redirects []string       `json:"redirectAt"` // ports between the two whose ACS redirects traffic
	State     string         `json:"state"`      // of the port: "4: ACTIVE"
	Rate      string         `json:"rate"`       // of the port: "200 Gb/sec (4X HDR)"
	RateGbps  float64        `json:"rateGbps"`
}

// Link is a PCIe link; zero is unknown.
type Link struct {
	Speed    float64 `json:"gts"`
	MaxSpeed float64 `json:"maxGts"`
	Width    int     `json:"lanes"`
	MaxWidth int     `json:"maxLanes"`
}

// NewEnd reads the facts of a VF and of its GPU; nil for none.
func NewEnd(sys fs.FS, tree *topology.Tree, vf topology.Address, gpuID string, gpu *GPU) End {
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
		e.PCIe = Link(pf.PCIe)
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
