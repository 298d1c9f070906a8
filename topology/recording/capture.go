// SPDX-License-Identifier: Apache-2.0

package recording

import (
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
)

const pciDevices = "bus/pci/devices"

// Capture records a machine from its sysfs, os.DirFS("/sys") on a live node. Only the facts of config and vpd
// need privileges, those of root. Comments of the machine count the unreadable files by name. Capture returns
// an error only if it cannot list the PCI functions.
func Capture(sys fs.FS) (*Machine, error) {
	c := &capture{sys: sys, builder: NewBuilder(), left: map[string]int{}, scrub: newScrubber()}
	if err := c.captureFunctions(); err != nil {
		return nil, fmt.Errorf("capture machine: %w", err)
	}
	c.copyEntries(".", machinePatterns)
	for _, pattern := range linkDirs {
		c.copyLinks(".", pattern)
	}
	for _, name := range slices.Sorted(maps.Keys(c.left)) {
		const text = "left out, could not be read: %s (%d)%s"
		c.builder.Comment(fmt.Sprintf(text, name, c.left[name], readerHint(name)))
	}
	return c.builder.Machine()
}

// readerHint says who can read a file that other users cannot.
func readerHint(name string) string {
	if name == configFile || name == vpdFile {
		return "; root can read it"
	}
	return ""
}

type capture struct {
	sys     fs.FS
	builder *Builder
	left    map[string]int // omitted entries by name
	scrub   *scrubber
}

// captureFunctions records all PCI functions and their links in bus/pci/devices.
func (c *capture) captureFunctions() error {
	entries, err := fs.ReadDir(c.sys, pciDevices)
	if err != nil {
		return fmt.Errorf("list PCI devices: %w", err)
	}
	for _, entry := range entries {
		name := path.Join(pciDevices, entry.Name())
		target, err := fs.ReadLink(c.sys, name)
		if err != nil || checkTarget(name, target) != nil {
			c.leaveOut(name, err)
			continue
		}
		dir := path.Join(pciDevices, target)
		c.leaveFailed(name, c.builder.addLink(name, target))
		c.leaveFailed(dir, c.builder.addDir(dir))
		c.copyEntries(dir, pciPatterns)
		c.recordFacts(dir)
	}
	return nil
}

// copyEntries records the entries below a directory that match patterns.
func (c *capture) copyEntries(dir string, patterns []string) {
	entries, err := fs.ReadDir(c.sys, dir)
	if err != nil {
		c.leaveOut(dir, err)
		return
	}
	for _, entry := range entries {
		whole, deeper := matchName(patterns, entry.Name())
		name := path.Join(dir, entry.Name())
		if whole {
			c.copyEntry(name, entry.Type())
		}
		if len(deeper) > 0 && entry.IsDir() {
			c.copyEntries(name, deeper)
		}
	}
}

// matchName matches a name with the first element of each pattern. It returns whether a whole pattern
// matches, and the remaining elements of longer patterns.
func matchName(patterns []string, name string) (whole bool, deeper []string) {
	for _, pattern := range patterns {
		first, rest, more := strings.Cut(pattern, "/")
		ok, err := path.Match(first, name)
		switch {
		case err != nil || !ok:
		case more:
			deeper = append(deeper, rest)
		default:
			whole = true
		}
	}
	return whole, deeper
}

// copyEntry records one file, link or empty directory.
func (c *capture) copyEntry(name string, kind fs.FileMode) {
	as := c.scrub.scrubNames(name)
	switch kind {
	case fs.ModeDir:
		c.leaveFailed(name, c.builder.addDir(as))
	case fs.ModeSymlink:
		target, err := fs.ReadLink(c.sys, name)
		if err == nil {
			err = c.builder.addLink(as, c.scrub.scrubNames(target))
		}
		c.leaveFailed(name, err)
	default:
		content, err := fs.ReadFile(c.sys, name)
		if err == nil {
			err = c.builder.addNode(as, &node{text: c.scrub.scrubContent(name, string(content))})
		}
		c.leaveFailed(name, err)
	}
}

// copyLinks records the links with recorded targets in the directories that match a pattern.
func (c *capture) copyLinks(dir, pattern string) {
	first, rest, more := strings.Cut(pattern, "/")
	entries, err := fs.ReadDir(c.sys, dir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		ok, err := path.Match(first, entry.Name())
		name := path.Join(dir, entry.Name())
		switch {
		case err != nil || !ok || !entry.IsDir():
		case more:
			c.copyLinks(name, rest)
		default:
			c.linksIn(name)
		}
	}
}

func (c *capture) linksIn(dir string) {
	entries, err := fs.ReadDir(c.sys, dir)
	if err != nil {
		c.leaveOut(dir, err)
		return
	}
	for _, entry := range entries {
		name := path.Join(dir, entry.Name())
		if entry.Type() != fs.ModeSymlink {
			continue
		}
		target, err := fs.ReadLink(c.sys, name)
		if err == nil && c.builder.Has(path.Join(dir, c.scrub.scrubNames(target))) {
			c.copyEntry(name, fs.ModeSymlink)
		}
	}
}

func (c *capture) leaveFailed(name string, err error) {
	if err != nil {
		c.leaveOut(name, err)
	}
}

// leaveOut counts an omitted entry, unless its device has disappeared.
func (c *capture) leaveOut(name string, err error) {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		return
	}
	c.left[c.scrub.scrubNames(path.Base(name))]++
}

// The lists below name all files that Capture records, besides config and vpd. Each element of a pattern is a
// path.Match pattern for one path element. A directory that matches a whole pattern is recorded without its
// content.

// pciPatterns are relative to the directory of each PCI function (Documentation/ABI/testing/sysfs-bus-pci,
// sysfs-class-net, sysfs-class-infiniband and, for the AMD files, Documentation/gpu/amdgpu).
var pciPatterns = []string{
	"class", "vendor", "device", "subsystem_vendor", "subsystem_device", "acpi_index",
	"numa_node",
	"current_link_speed", "current_link_width", "max_link_speed", "max_link_width",
	"driver", "iommu_group", "physfn", "virtfn*", // links
	"sriov_totalvfs", "sriov_numvfs",
	"net", "net/*",
	"net/*/type", "net/*/carrier", "net/*/operstate", "net/*/speed", "net/*/phys_port_name",
	"net/*/phys_switch_id",
	"virtio*/net/*", "virtio*/net/*/type", "virtio*/net/*/carrier", "virtio*/net/*/operstate",
	"virtio*/net/*/speed",
	"infiniband", "infiniband/*",
	"infiniband/*/ports/*/state", "infiniband/*/ports/*/phys_state", "infiniband/*/ports/*/link_layer",
	"infiniband/*/ports/*/rate", "infiniband/*/ports/*/pkeys/0",
	"infiniband_verbs/uverbs*", "infiniband_verbs/uverbs*/ibdev",
	"infiniband_mad/umad*", "infiniband_mad/umad*/ibdev", "infiniband_mad/umad*/port",
	"infiniband_mad/issm*", "infiniband_mad/issm*/ibdev", "infiniband_mad/issm*/port",
	"infiniband_cm/ucm*", "infiniband_cm/ucm*/ibdev",
	"*.rdma.*", "*.roce.*", "*.iwarp.*", // auxiliary devices for RDMA
	"*.sf.*", "*.sf.*/sfnum", "*.sf.*/net/*", "*.sf.*/net/*/type", "*.sf.*/*.rdma.*", // sub-functions
	"*.sf.*/infiniband/*", "*.sf.*/infiniband_verbs/uverbs*", "*.sf.*/infiniband_verbs/uverbs*/ibdev",
	"drm/card*", "drm/card*/dev", "drm/renderD*", "drm/renderD*/dev",
	"current_compute_partition", "current_memory_partition", "mem_info_vram_total",
}

// machinePatterns are relative to the root.
var machinePatterns = []string{
	"devices/platform/amdgpu_xcp*",
	"devices/platform/amdgpu_xcp*/drm/card*", "devices/platform/amdgpu_xcp*/drm/card*/dev",
	"devices/platform/amdgpu_xcp*/drm/renderD*", "devices/platform/amdgpu_xcp*/drm/renderD*/dev",
	"devices/system/node/online", "devices/system/node/node*/cpulist", "devices/system/node/node*/distance",
	"devices/virtual/kfd/kfd/topology/system_properties",
	"devices/virtual/kfd/kfd/topology/nodes",
	"devices/virtual/kfd/kfd/topology/nodes/*/properties",
	"devices/virtual/kfd/kfd/topology/nodes/*/gpu_id",
	"devices/virtual/kfd/kfd/topology/nodes/*/name",
	"devices/virtual/kfd/kfd/topology/nodes/*/io_links/*/properties",
	"devices/virtual/kfd/kfd/topology/nodes/*/p2p_links/*/properties",
	"kernel/iommu_groups/*", "kernel/iommu_groups/*/name",
	"module/amdgpu", "module/amdgpu/version", "module/amdgpu/drivers/*",
}

// linkDirs are directories of links. Capture records links with recorded targets.
var linkDirs = []string{
	"bus/pci/drivers/*",
	"class/drm", "class/infiniband", "class/infiniband_cm", "class/infiniband_mad", "class/infiniband_verbs",
	"class/kfd", "class/net",
}

// scrubber replaces identifiers of a machine. Equal identifiers get equal replacements, so that references
// between files stay valid.
type scrubber struct {
	names      map[string]string // replacements of interface names that contain an address
	identities map[string]int    // replacements of hardware identifiers
}

func newScrubber() *scrubber {
	return &scrubber{names: map[string]string{}, identities: map[string]int{}}
}

// addressed matches names of interfaces and RDMA devices that contain a MAC address or GUID: enx001122334455,
// ibx…, rocex… (systemd.net-naming-scheme(7), rdma_rename in rdma-core).
// A suffix, as of a VF, does not hide an address.
var addressed = regexp.MustCompile(`(en|ib|wl|ww|roce|iw|opa|rdma)x([0-9a-f]{16}|[0-9a-f]{12})`)

// scrubNames replaces addressed names in a path, a link target or other text: enx001122334455 by
// enx000000000001.
func (s *scrubber) scrubNames(text string) string {
	if !mayBeAddressed(text) {
		return text
	}
	return addressed.ReplaceAllStringFunc(text, func(found string) string {
		if s.names[found] == "" {
			kind, digits, _ := strings.Cut(found, "x")
			s.names[found] = fmt.Sprintf("%sx%0*x", kind, len(digits), len(s.names)+1)
		}
		return s.names[found]
	})
}

// mayBeAddressed reports whether a text may match addressed. It is much faster than the regular expression.
func mayBeAddressed(text string) bool {
	for _, kind := range []string{"enx", "ibx", "wlx", "wwx", "rocex", "iwx", "opax", "rdmax"} {
		if strings.Contains(text, kind) {
			return true
		}
	}
	return false
}

// identity matches the lines of a KFD properties file that identify a GPU or a hive of linked GPUs (node_show
// in drivers/gpu/drm/amd/amdkfd/kfd_topology.c).
var identity = regexp.MustCompile(`(?m)^(unique_id|hive_id) ([0-9]+)$`)

// scrubContent replaces identifiers in the content of a file.
func (s *scrubber) scrubContent(name, text string) string {
	switch path.Base(name) {
	case "phys_switch_id": // made of a MAC address by most drivers
		if id := strings.TrimSpace(text); id != "" {
			return fmt.Sprintf("%02x\n", s.numberOf(id))
		}
	case "properties":
		return identity.ReplaceAllStringFunc(text, func(line string) string {
			key, value, _ := strings.Cut(line, " ")
			if key == "unique_id" {
				return "unique_id 0"
			}
			return fmt.Sprintf("hive_id %d", s.numberOf(value))
		})
	}
	return s.scrubNames(text)
}

// scrubKeyword replaces a keyword of Vital Product Data; "" stays.
func (s *scrubber) scrubKeyword(value string) string {
	if value == "" {
		return ""
	}
	return strconv.Itoa(s.numberOf(value))
}

// numberOf returns the replacement of an identifier, from 1 up in the order of first use. Zero means none and
// stays zero.
func (s *scrubber) numberOf(id string) int {
	if strings.Trim(id, "0") == "" {
		return 0
	}
	if s.identities[id] == 0 {
		s.identities[id] = len(s.identities) + 1
	}
	return s.identities[id]
}
