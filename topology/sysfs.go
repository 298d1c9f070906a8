// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"
)

// PCIDevices is the kernel's directory of all PCI functions, each a link to its place in the tree.
const PCIDevices = "bus/pci/devices"

// Read reads the PCI tree below a sysfs root: os.DirFS("/sys") on a live node, a recorded machine elsewhere.
// The file system has to report links (fs.ReadLinkFS). Per function it reads
//
//	bus/pci/devices/<BDF>                      the link: the chain of bridges, without privilege
//	  class, vendor, device, numa_node
//	  current_link_speed, current_link_width, max_link_speed, max_link_width
//	  config                                   of a bridge: its ACS, which takes CAP_SYS_ADMIN; likewise ATS of
//	                                           ConnectX NICs on a machine with ConnectX switches
//	  vpd                                      of DMA functions, of ConnectX NICs on a machine with DMA
//	                                           functions, and of functions that may manage NVSwitches, which
//	                                           takes root
//	  driver                                   link
//	  physfn, virtfn<N>                        links, not of a bridge
//	  net/, virtio<N>/net/, infiniband/        names that can be passed on, not of a bridge
//	devices/system/node/online                 NUMA nodes
//
// (Documentation/ABI/testing/sysfs-bus-pci). An absent file is an unknown value. A function that vanishes
// during the read is omitted. A file with an unreadable or unknown content is an error with the names of file
// and function.
func Read(sys fs.FS) (*Tree, error) {
	entries, err := fs.ReadDir(sys, PCIDevices)
	if err != nil {
		return nil, fmt.Errorf("list PCI devices: %w", err)
	}
	devices := make(map[Address]*Device, len(entries))
	for _, entry := range entries {
		device, err := readDevice(sys, entry.Name())
		if errors.Is(err, errVanished) {
			continue
		}
		if err != nil {
			return nil, err
		}
		devices[device.Address] = device
	}
	readDetails(sys, devices)
	nodes, err := readNodes(sys)
	if err != nil {
		return nil, err
	}
	return newTree(devices, nodes), nil
}

// readDetails reads the facts about NICs that matter only beside certain other functions: the kernel reads
// both files from the device, which takes time.
func readDetails(sys fs.FS, devices map[Address]*Device) {
	withFunctions, withSwitches, withGPUs, withNVSwitches := false, false, false, false
	for _, d := range devices {
		withFunctions = withFunctions || d.isDMAFunction()
		withSwitches = withSwitches || d.IsNICSwitch()
		withGPUs = withGPUs || d.isNVIDIA()
		withNVSwitches = withNVSwitches || d.isNVSwitch()
	}
	for _, d := range devices {
		if withFunctions && (d.isDMAFunction() || d.isConnectX()) ||
			withGPUs && !withNVSwitches && d.mayManageNVSwitches() {
			vpd := readVPD(sys, d.Address)
			d.V3, d.ManagesNVSwitches = vpd.V3, vpd.ManagesNVSwitches
		}
		if withSwitches && d.isConnectX() {
			if c, known := readCapabilities(sys, d.Address); known {
				d.ATS = c.ATS
			}
		}
	}
}

// readVPD reads a function's file vpd; no keyword if the file is absent, damaged or unreadable.
func readVPD(sys fs.FS, function Address) VPD {
	file, err := sys.Open(path.Join(PCIDevices, function.String(), "vpd"))
	if err != nil {
		return VPD{}
	}
	defer func() { _ = file.Close() }() // opened for reading
	vpd, err := ReadVPD(file)
	if err != nil {
		return VPD{}
	}
	return vpd
}

// errVanished is the error of a function that vanished after it was listed.
var errVanished = errors.New("device vanished")

// Gone reports whether an error means that the file's device vanished: sysfs returns ENODEV during the
// removal of the directory and ENOENT afterwards.
func Gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) }

func readDevice(sys fs.FS, name string) (*Device, error) {
	address, err := ParseAddress(name)
	if err != nil {
		return nil, fmt.Errorf("list PCI devices: %w", err)
	}
	target, err := fs.ReadLink(sys, path.Join(PCIDevices, name))
	if Gone(err) {
		return nil, errVanished
	}
	if err != nil {
		return nil, fmt.Errorf("read link of %s: %w", name, err)
	}
	d := &Device{Address: address}
	d.rootComplex, d.bridges = parseChain(target)
	r := &reader{sys: sys, dir: path.Join(PCIDevices, name), name: name}
	r.readAttributes(d)
	r.readLinks(d)
	// Files of a vanished function look absent, so the last step is to look for the function again.
	if _, err := fs.Stat(sys, r.dir); Gone(err) || Gone(r.err) {
		return nil, errVanished
	}
	if r.err != nil {
		return nil, r.err
	}
	return d, nil
}

// parseChain splits the target of a link in bus/pci/devices,
// "../../../devices/pci0000:80/0000:80:01.0/0000:81:00.0", into the root complex and the bridges above the
// function. If root complexes are nested (VMD), the innermost counts.
func parseChain(target string) (rootComplex string, bridges []Address) {
	for element := range strings.SplitSeq(path.Dir(target), "/") {
		if isRootComplex(element) {
			rootComplex, bridges = element, nil
		} else if a, err := ParseAddress(element); err == nil {
			bridges = append(bridges, a)
		}
	}
	return rootComplex, bridges
}

// isRootComplex reports whether a name has the format "pci%04x:%02x" (pci_register_host_bridge in
// drivers/pci/probe.c).
func isRootComplex(element string) bool {
	number, ok := strings.CutPrefix(element, "pci")
	if !ok {
		return false
	}
	_, err := ParseAddress(number + ":00.0")
	return err == nil
}

// reader reads the files of one function and keeps the first error.
type reader struct {
	sys  fs.FS
	dir  string
	name string
	err  error
}

func (r *reader) readAttributes(d *Device) {
	d.Class = Class(r.readNumber("class", 0, 32))
	d.Vendor = uint16(r.readNumber("vendor", 0, 16))
	d.Product = uint16(r.readNumber("device", 0, 16))
	d.NUMA = r.readNUMA("numa_node")
	d.PCIe = ReadPCIeLink(r.sys, r.dir)
	if d.Class.isBridge() {
		if c, known := readCapabilities(r.sys, d.Address); known {
			d.ACS, d.Control = c.effectOf(), c.Control
		}
	}
}

// readLinks reads only links that a function of this kind can have, because every lookup takes time.
func (r *reader) readLinks(d *Device) {
	d.Driver = r.linkTarget("driver")
	if d.Class.isBridge() {
		return
	}
	if pf := r.linkTarget("physfn"); pf != "" {
		d.PF = r.parseAddress("physfn", pf)
	} else {
		d.VFs = r.virtualFunctions()
	}
	d.Netdevs = PassableNames(r.listNames(netFolder(r.sys, r.dir)))
	d.RDMA = PassableNames(r.listNames("infiniband"))
}

// keepError keeps the first error, with the names of file and function.
func (r *reader) keepError(file string, err error) {
	if r.err == nil {
		r.err = fmt.Errorf("read %s of %s: %w", file, r.name, err)
	}
}

// readText returns a file's content without the newline, "" if the file is absent.
func (r *reader) readText(file string) string {
	content, err := fs.ReadFile(r.sys, path.Join(r.dir, file))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.keepError(file, err)
	}
	return strings.TrimSpace(string(content))
}

// readNumber reads a number with or without 0x, 0 if the file is absent.
func (r *reader) readNumber(file string, base, bits int) uint64 {
	s := r.readText(file)
	if s == "" {
		return 0
	}
	n, err := strconv.ParseUint(s, base, bits)
	if err != nil {
		r.keepError(file, fmt.Errorf("parse %q: %w", s, errors.Unwrap(err)))
	}
	return n
}

func (r *reader) readNUMA(file string) NUMANode {
	s := r.readText(file)
	if s == "" {
		return NUMANode{}
	}
	n, err := ParseNUMANode(s)
	if err != nil {
		r.keepError(file, fmt.Errorf("parse %q: %w", s, errors.Unwrap(err)))
	}
	return n
}

// ReadPCIeLink reads the link of the function whose files are in a directory. A file that cannot be read
// gives zero: the kernel reads these files from the device, and a device that returns an error (EINVAL, EIO)
// is still usable for placement.
func ReadPCIeLink(sys fs.FS, dir string) PCIeLink {
	text := func(file string) string {
		content, err := fs.ReadFile(sys, path.Join(dir, file))
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(content))
	}
	return PCIeLink{
		Speed: parseLinkSpeed(text("current_link_speed")), MaxSpeed: parseLinkSpeed(text("max_link_speed")),
		Width: ParseLinkWidth(text("current_link_width")), MaxWidth: ParseLinkWidth(text("max_link_width")),
	}
}

// parseLinkSpeed reads "32.0 GT/s PCIe"; other text, such as "Unknown", is an unknown speed
// (pci_speed_string in drivers/pci/probe.c).
func parseLinkSpeed(text string) float64 {
	number, _, ok := strings.Cut(text, " GT/s")
	speed, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil {
		return 0
	}
	return speed
}

// ParseLinkWidth reads a number of lanes; 255 is an unknown width (PCIE_LNK_WIDTH_UNKNOWN in
// include/linux/pci.h).
func ParseLinkWidth(text string) int {
	width, err := strconv.Atoi(text)
	if err != nil || width <= 0 || width >= 255 {
		return 0
	}
	return width
}

// linkTarget returns the last element of a link's target, "" if the link is absent.
func (r *reader) linkTarget(file string) string {
	target, err := fs.ReadLink(r.sys, path.Join(r.dir, file))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			r.keepError(file, err)
		}
		return ""
	}
	return path.Base(target)
}

func (r *reader) parseAddress(file, s string) Address {
	a, err := ParseAddress(s)
	if err != nil {
		r.keepError(file, err)
	}
	return a
}

// listNames returns the sorted names in a directory, nil if the directory is absent.
func (r *reader) listNames(dir string) []string {
	entries, err := fs.ReadDir(r.sys, path.Join(r.dir, dir))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			r.keepError(dir, err)
		}
		return nil
	}
	return namesOf(entries)
}

// virtualFunctions returns the targets of virtfn0, virtfn1 … in the order of the indices, not of the names.
func (r *reader) virtualFunctions() []Address {
	type virtfn struct {
		index int
		name  string
	}
	var found []virtfn
	for _, name := range r.listNames(".") {
		if suffix, ok := strings.CutPrefix(name, "virtfn"); ok {
			if index, err := strconv.Atoi(suffix); err == nil {
				found = append(found, virtfn{index, name})
			}
		}
	}
	slices.SortFunc(found, func(a, b virtfn) int { return a.index - b.index })
	addresses := make([]Address, 0, len(found))
	for _, v := range found {
		if target := r.linkTarget(v.name); target != "" {
			addresses = append(addresses, r.parseAddress(v.name, target))
		}
	}
	return addresses
}

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
