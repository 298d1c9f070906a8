// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"syscall"

	"github.com/tandem-k8s/tandem/topology"
)

// Of drivers/gpu/drm/amd/amdkfd/kfd_crat.h and kfd_crat.c.
const (
	linkXGMI     = 11 // CRAT_IOLINK_TYPE_XGMI
	weightXGMI   = 15 // KFD_CRAT_XGMI_WEIGHT, per hop between two cards
	weightWithin = 13 // KFD_CRAT_INTRA_SOCKET_WEIGHT, of a hop between partitions of a card
)

// ReadLinks reads the XGMI links between cards from the KFD topology: io_links to neighbours, p2p_links to
// farther cards. Links between partitions count for their cards; the best link between two cards counts.
// Without KFD there are no links.
func ReadLinks(sys fs.FS) ([]topology.Link, error) {
	nodes, _, err := readNodes(sys)
	if err != nil {
		return nil, err
	}
	gpus := map[uint64]node{}
	for _, n := range nodes {
		if n.gpu {
			gpus[uint64(n.number)] = n
		}
	}
	links := map[[2]topology.Address]topology.Link{}
	for _, from := range gpus {
		for _, kind := range []string{"io_links", "p2p_links"} {
			dir := path.Join(kfdNodes, strconv.Itoa(from.number), kind)
			if err := addLinks(sys, dir, gpus, from, links); err != nil {
				return nil, err
			}
		}
	}
	return slices.SortedFunc(maps.Values(links), func(a, b topology.Link) int {
		return cmp.Or(a.A.Compare(b.A), a.B.Compare(b.B))
	}), nil
}

// addLinks reads one folder of a GPU's links. It ignores links to absent nodes and to nodes other than GPUs.
func addLinks(
	sys fs.FS, dir string, gpus map[uint64]node, from node, links map[[2]topology.Address]topology.Link,
) error {
	numbers, err := numbered(sys, dir)
	if err != nil {
		return err
	}
	for _, number := range numbers {
		p, err := readProperties(sys, path.Join(dir, strconv.Itoa(number), "properties"),
			"type", "node_to", "weight", "min_bandwidth", "max_bandwidth")
		if errors.Is(err, syscall.EPERM) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read link %d of KFD node %d: %w", number, from.number, err)
		}
		to, ok := gpus[p["node_to"]]
		if ok && p["type"] == linkXGMI && to.card != from.card {
			addLink(links, from.card, to.card, p)
		}
	}
	return nil
}

// addLink keeps the better of two links between two cards: fewer hops, then more parallel links.
func addLink(links map[[2]topology.Address]topology.Link, a, b topology.Address, p map[string]uint64) {
	if a.Compare(b) > 0 {
		a, b = b, a
	}
	link := topology.Link{A: a, B: b, Type: topology.XGMI, Hops: hops(int(p["weight"])), Count: 1}
	if least, most := p["min_bandwidth"], p["max_bandwidth"]; least > 0 && most > least {
		link.Count = int(most / least) // kfd_fill_gpu_xgmi_link_to_gpu: of one link, and of all between the two
	}
	known, ok := links[[2]topology.Address{a, b}]
	if !ok || cmp.Or(cmp.Compare(link.Hops, known.Hops), cmp.Compare(known.Count, link.Count)) < 0 {
		links[[2]topology.Address{a, b}] = link
	}
}

// hops returns the number of hops to the other card. The weight between partitions of different cards
// includes the paths inside both cards.
func hops(weight int) int {
	if weight%weightXGMI != 0 {
		weight -= 2 * weightWithin
	}
	return max(weight/weightXGMI, 1)
}
