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
	"strings"
	"syscall"

	"github.com/tandem-k8s/tandem/topology"
)

// kfdNodes is the KFD topology: CPUs, and GPUs with each partition as a GPU of its own
// (drivers/gpu/drm/amd/amdkfd/kfd_topology.c).
const kfdNodes = "class/kfd/kfd/topology/nodes"

// node is a node of the KFD topology.
type node struct {
	number int
	gpu    bool
	// the kernel hides a GPU from processes whose device cgroup does not allow the GPU
	// (kfd_devcgroup_check_permission)
	hidden bool
	card   topology.Address
	part   int // of a partitioned card
	render int // minor of its render node
}

// readNodes reads the nodes in numerical order, or none without KFD. The kernel numbers nodes without gaps
// (kfd_build_sysfs_node_entry); a gap exists briefly while the partitioning of a GPU changes, and affects
// only the devices of the missing nodes. Unreadable nodes are omitted and named in the error.
func readNodes(sys fs.FS) (nodes []node, notes []string, unread error) {
	numbers, err := numbered(sys, kfdNodes)
	if err != nil {
		return nil, nil, err
	}
	next := 0
	for _, number := range numbers {
		if number != next {
			notes = append(notes, fmt.Sprintf("KFD topology: node %d is there and node %d before it is missing, "+
				"with its partition and links, if it has any: reload amdgpu if this lasts", number, number-1))
		}
		next = number + 1
		n, err := readNode(sys, number)
		if err != nil {
			unread = errors.Join(unread, err)
			continue
		}
		nodes = append(nodes, n)
	}
	return nodes, notes, unread
}

func readNode(sys fs.FS, number int) (node, error) {
	file := path.Join(kfdNodes, strconv.Itoa(number), "properties")
	p, err := readProperties(sys, file, "simd_count", "domain", "location_id", "drm_render_minor")
	if errors.Is(err, syscall.EPERM) {
		return node{number: number, hidden: true}, nil
	}
	if err != nil {
		return node{}, fmt.Errorf("read KFD node %d: %w", number, err)
	}
	return node{
		number: number,
		gpu:    p["simd_count"] > 0 || p["drm_render_minor"] > 0,
		card:   CardAddress(p["domain"], p["location_id"]),
		part:   int(p["location_id"] & 7),
		render: int(p["drm_render_minor"]),
	}, nil
}

// ReadOrder returns the render nodes of the GPUs, "/dev/dri/renderD128", in the order of the KFD topology,
// which is the order of ROCm's device indexes. Like ROCm, it omits GPUs that the device cgroup hides.
func ReadOrder(sys fs.FS) (order []string, err error) {
	nodes, _, err := readNodes(sys)
	for _, n := range nodes {
		if n.gpu && n.render > 0 {
			order = append(order, renderNode+strconv.Itoa(n.render))
		}
	}
	return order, err
}

// CardAddress decodes location_id: bus in bits 8 to 15, device in 3 to 7. The low three bits, the function (0
// for every GPU) or the number of a partition, are masked.
func CardAddress(domain, location uint64) topology.Address {
	return topology.Address{Domain: uint32(domain), Bus: uint8(location >> 8), Device: uint8(location>>3) & 0x1f}
}

// numbered returns the numeric names in a folder, ascending, or nil if the folder is absent.
func numbered(sys fs.FS, dir string) ([]int, error) {
	entries, err := fs.ReadDir(sys, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list KFD topology: %w", err)
	}
	var numbers []int
	for _, entry := range entries {
		if n, err := strconv.Atoi(entry.Name()); err == nil && n >= 0 {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// readProperties reads the values of names from a properties file, with a line "name number" for each
// (sysfs_show_32bit_prop in kfd_topology.c). Absent values are 0.
func readProperties(sys fs.FS, file string, names ...string) (map[string]uint64, error) {
	content, err := fs.ReadFile(sys, file)
	if err != nil {
		return nil, err
	}
	return parseProperties(string(content), names)
}

func parseProperties(content string, names []string) (map[string]uint64, error) {
	properties := make(map[string]uint64, len(names))
	for line := range strings.Lines(content) {
		name, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !slices.Contains(names, name) {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("property %s: %q is no number", name, number)
		}
		properties[name] = n
	}
	return properties, nil
}

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
