// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

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
		if card.NUMA, err = topology.ParseNUMANode(text); err != nil {
			return part{}, fmt.Errorf("read numa_node of %s: %q is no number", address, text)
		}
	}
	if card.Nodes, err = drmNodes(sys, dir); err != nil {
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
