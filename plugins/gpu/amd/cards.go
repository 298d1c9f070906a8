// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/topology"
)

// Paths of GPUs below the sysfs root.
const (
	module = "module/amdgpu"
	// one link per PCI function bound to amdgpu, named by its address
	functions = module + "/drivers/pci:amdgpu"
	// partitions, amdgpu_xcp_<n> (drivers/gpu/drm/amd/amdxcp/amdgpu_xcp_drv.c)
	platform = "devices/platform"
)

// Paths of device nodes for the container runtime, independent of --dev-root.
const (
	ComputeNode = "/dev/kfd" // which a container needs for any of the GPUs
	cardNode    = "/dev/dri/card"
	renderNode  = "/dev/dri/renderD"
)

// IsLoaded reports whether amdgpu is loaded, perhaps before it has probed all of its GPUs.
func IsLoaded(sys fs.FS) bool {
	_, err := fs.Stat(sys, module)
	return !errors.Is(err, fs.ErrNotExist)
}

// part is a device with the partitioning of its card.
type part struct {
	gpu.Device
	kind string // "cpx_nps4"; "" for a card without partitioning
}

// readCards reads the PCI functions bound to amdgpu. It omits vanished functions, and unreadable ones, which
// the error names.
func readCards(sys fs.FS) (map[topology.Address]part, error) {
	entries, err := fs.ReadDir(sys, functions)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list AMD GPUs: %w", err)
	}
	cards := map[topology.Address]part{}
	var unread []error
	for _, entry := range entries {
		address, err := topology.ParseAddress(entry.Name())
		if err != nil {
			continue // bind, unbind, uevent and the like
		}
		card, err := readCard(sys, address)
		if _, gone := fs.Stat(sys, path.Join(functions, entry.Name())); errors.Is(gone, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			unread = append(unread, err)
			continue
		}
		cards[address] = card
	}
	return cards, errors.Join(unread...)
}

// readCard reads one PCI function: numa_node, drm/ and the partitioning
// (amdgpu_gfx_sysfs_init and amdgpu_gmc_sysfs_init in drivers/gpu/drm/amd/amdgpu).
func readCard(sys fs.FS, address topology.Address) (part, error) {
	dir := path.Join(functions, address.String())
	card := part{Device: gpu.Device{ID: address.String(), Card: address}}
	text, err := read(sys, path.Join(dir, "numa_node"))
	if err != nil {
		return part{}, err
	}
	if text != "" {
		card.NUMA, err = topology.ParseNUMANode(text)
		if err != nil {
			return part{}, fmt.Errorf("read numa_node of %s: %q is no number", address, text)
		}
	}
	card.Nodes, err = drmNodes(sys, dir)
	if err != nil {
		return part{}, err
	}
	if size, err := ReadVRAM(sys, address); err == nil { // unknown otherwise: the next discovery reads again
		card.VRAM = size
	}
	compute, err := read(sys, path.Join(dir, "current_compute_partition"))
	if err != nil {
		return part{}, err
	}
	memory, err := read(sys, path.Join(dir, "current_memory_partition"))
	if err != nil {
		return part{}, err
	}
	if compute != "" && memory != "" {
		card.kind = strings.ToLower(compute + "_" + memory)
	}
	return card, nil
}

// partitionName matches both forms of partition names in kernels.
var partitionName = regexp.MustCompile(`^amdgpu_xcp[._][0-9]+$`)

// readPartitions reads all partitions except each card's first. It omits unused ones, which are not in the
// KFD topology, and unreadable ones, which the error names. A partition has the NUMA node and the
// partitioning of its card.
func readPartitions(
	sys fs.FS, cards map[topology.Address]part, nodes []node,
) (parts []part, notes []string, unread error) {
	entries, err := fs.ReadDir(sys, platform)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("list AMD GPU partitions: %w", err)
	}
	hidden := slices.ContainsFunc(nodes, func(n node) bool { return n.hidden })
	for _, entry := range entries {
		id := entry.Name()
		if !partitionName.MatchString(id) {
			continue
		}
		paths, err := drmNodes(sys, path.Join(platform, id))
		if err != nil {
			unread = errors.Join(unread, err)
			continue
		}
		i := slices.IndexFunc(nodes, func(n node) bool {
			return n.gpu && slices.Contains(paths, renderNode+strconv.Itoa(n.render))
		})
		if i < 0 {
			if hidden && len(paths) > 0 {
				notes = append(notes, id+": left out: the kernel hides the KFD topology from a container without access "+
					"to the GPUs; run it privileged")
			}
			continue
		}
		card, ok := cards[nodes[i].card]
		if !ok {
			notes = append(notes, fmt.Sprintf("%s: left out: its card %s is not driven by amdgpu", id, nodes[i].card))
			continue
		}
		card.ID, card.Nodes, card.Part = id, paths, strconv.Itoa(nodes[i].part)
		parts = append(parts, card)
	}
	return parts, notes, unread
}

// completeCards returns the cards of which all devices are known, sorted: those without partitions, and all
// while the KFD topology is complete.
func completeCards(cards map[topology.Address]part, nodes []node) (complete []topology.Address) {
	isComplete := true
	for i, n := range nodes {
		isComplete = isComplete && n.number == i && !n.hidden
	}
	for address, card := range cards {
		if isComplete || card.kind == "" || strings.HasPrefix(card.kind, "spx_") {
			complete = append(complete, address)
		}
	}
	slices.SortFunc(complete, topology.Address.Compare)
	return complete
}

// drmNodes returns the device nodes of the DRM minors below a device, the card first, with the kernel's names
// (drm_minor_alloc in drivers/gpu/drm/drm_drv.c), or nil without a drm folder.
func drmNodes(sys fs.FS, dir string) ([]string, error) {
	entries, err := fs.ReadDir(sys, path.Join(dir, "drm"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list DRM nodes of %s: %w", path.Base(dir), err)
	}
	var card, render []string
	for _, entry := range entries {
		if n, ok := minor(entry.Name(), "card"); ok {
			card = append(card, cardNode+n)
		} else if n, ok := minor(entry.Name(), "renderD"); ok {
			render = append(render, renderNode+n)
		}
	}
	return append(card, render...), nil
}

// minor splits "renderD128" into its prefix and "128".
func minor(name, prefix string) (string, bool) {
	number, ok := strings.CutPrefix(name, prefix)
	if _, err := strconv.ParseUint(number, 10, 16); !ok || err != nil {
		return "", false
	}
	return number, true
}

// read returns a file's content without the newline, or "" if the file or its device is absent.
func read(sys fs.FS, file string) (string, error) {
	content, err := fs.ReadFile(sys, file)
	if topology.Gone(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read %s of %s: %w", path.Base(file), path.Base(path.Dir(file)), err)
	}
	return strings.TrimSpace(string(content)), nil
}

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
	numbers, err := listNumbers(sys, kfdNodes)
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

// listNumbers returns the numeric names in a folder, ascending, or nil if the folder is absent.
func listNumbers(sys fs.FS, dir string) ([]int, error) {
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
	numbers, err := listNumbers(sys, dir)
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
	link := topology.Link{A: a, B: b, Type: topology.XGMI, Hops: countHops(int(p["weight"])), Count: 1}
	if least, most := p["min_bandwidth"], p["max_bandwidth"]; least > 0 && most > least {
		link.Count = int(most / least) // kfd_fill_gpu_xgmi_link_to_gpu: of one link, and of all between the two
	}
	known, ok := links[[2]topology.Address{a, b}]
	if !ok || cmp.Or(cmp.Compare(link.Hops, known.Hops), cmp.Compare(known.Count, link.Count)) < 0 {
		links[[2]topology.Address{a, b}] = link
	}
}

// countHops returns the number of hops to the other card. The weight between partitions of different cards
// includes the paths inside both cards.
func countHops(weight int) int {
	if weight%weightXGMI != 0 {
		weight -= 2 * weightWithin
	}
	return max(weight/weightXGMI, 1)
}
