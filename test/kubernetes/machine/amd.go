// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// readAMD returns the device of each render node: the device ID is the name of the parent,
// class/drm/<node>/device. For a GPU that is its address; a partition is a platform device, whose card is
// only in KFD.
func readAMD(sys fs.FS) (map[string]Device, error) {
	cards, err := readKFD(sys)
	if err != nil {
		return nil, err
	}
	links, err := fs.Glob(sys, "class/drm/renderD*")
	if err != nil {
		return nil, err
	}
	gpus := map[string]Device{}
	for _, link := range links {
		target, err := fs.ReadLink(sys, link) // ../../devices/…/<device>/drm/renderD128
		if err != nil {
			return nil, err
		}
		name := path.Base(link)
		address, ok := cards[name]
		if !ok {
			return nil, fmt.Errorf("%s is not in KFD's topology", name)
		}
		id := path.Base(path.Dir(path.Dir(target)))
		gpus[name] = Device{ID: id, Address: address, Node: name, Name: id}
	}
	return gpus, nil
}

// readKFD returns the PCI function of each render node, from class/kfd/kfd/topology/nodes/*/properties.
func readKFD(sys fs.FS) (map[string]topology.Address, error) {
	files, err := fs.Glob(sys, "class/kfd/kfd/topology/nodes/*/properties")
	if err != nil {
		return nil, err
	}
	cards := map[string]topology.Address{}
	for _, file := range files {
		text, err := fs.ReadFile(sys, file)
		if err != nil {
			return nil, err
		}
		properties := parseProperties(string(text))
		if minor := properties["drm_render_minor"]; minor > 0 {
			cards[fmt.Sprint("renderD", minor)] = kfdAddress(properties["domain"], properties["location_id"])
		}
	}
	return cards, nil
}

// parseProperties parses lines of a name and a number, and ignores other lines.
func parseProperties(text string) map[string]uint64 {
	properties := map[string]uint64{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseUint(value, 10, 64); err == nil {
			properties[name] = n
		}
	}
	return properties
}

// kfdAddress decodes location_id: bus and device as in a PCI address, but the low three bits number the
// partition; the function is always 0 (kfd_topology.c: pci_dev_id of the device; MI300 adds the partition).
func kfdAddress(domain, location uint64) topology.Address {
	return topology.Address{
		Domain: uint32(domain), Bus: uint8(location >> 8), Device: uint8(location >> 3 & 0x1f),
	}
}
