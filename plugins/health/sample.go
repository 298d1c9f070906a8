// SPDX-License-Identifier: Apache-2.0

package health

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// reading has the values of a function at one moment.
type reading struct {
	Counters map[counterKey]uint64
	Ports    []portState
	Link     topology.PCIeLink // the maximum is that of both ends of the link
}

// counterKey is a counter of a function; a function may have several ports.
type counterKey struct {
	Name string // as in a [rule]
	File string
}

// portState is a port of a function.
type portState struct {
	Name   string // "netdev eth0" or "port mlx5_0/1", for people
	Unread bool   // the state is unknown: a file cannot be read
	Up     bool
	WasUp  bool // since the driver has created the port
	Status string
}

// describeState returns the state for people.
func (p portState) describeState() string { return p.Name + " is " + p.Status }

// readValues reads the values. Whole is false if a file can no longer be read, for example after a change of
// the driver: then the files are to be found again.
func (s *source) readValues() (now reading, whole bool) {
	now.Counters, whole = make(map[counterKey]uint64, len(s.counters)), true
	for _, c := range s.counters {
		if value, ok := c.readNumber(); ok {
			now.Counters[counterKey{c.counter, c.name}] = value
		} else {
			whole = false
		}
	}
	now.Ports = slices.Clone(s.unknown)
	for _, n := range s.netdevs {
		if port, isUp := n.readState(); isUp {
			now.Ports = append(now.Ports, port)
		}
	}
	for _, p := range s.ports {
		now.Ports = append(now.Ports, p.readState())
	}
	now.Link = s.link.readLink()
	return now, whole && !slices.ContainsFunc(now.Ports, func(p portState) bool { return p.Unread })
}

// netdev is a netdev of a function.
type netdev struct {
	name, dir           string // "netdev eth0"
	flags, carrier, ups *file
}

// readState reads the state of a netdev, and reports whether the netdev is administratively up (IFF_UP in
// flags): the carrier of another netdev says nothing about the port. carrier_up_count counts since the
// creation of the netdev (Documentation/ABI/testing/sysfs-class-net).
func (n *netdev) readState() (portState, bool) {
	const up = 1 // IFF_UP in include/uapi/linux/if.h
	flags, known := n.flags.readNumber()
	if n.flags.missing || n.carrier.missing || known && flags&up == 0 {
		return portState{}, false
	}
	carrier, ok := n.carrier.readNumber()
	if !known || !ok {
		return portState{Name: n.name, Unread: true}, true
	}
	p := portState{Name: n.name, Up: carrier != 0, WasUp: true, Status: "without carrier"}
	if !p.Up {
		ups, known := n.ups.readNumber()
		p.WasUp = ups > 0 || !known
	}
	return p, true
}

// port is a port with link layer InfiniBand of an RDMA device. The state of a RoCE port is that of a netdev.
type port struct {
	name         string // "port mlx5_0/1"
	state, downs *file
}

// readState reads the state, "4: ACTIVE" (Documentation/ABI/stable/sysfs-class-infiniband).
func (p *port) readState() portState {
	word, ok := p.state.readWord()
	if !ok || word == "" {
		return portState{Name: p.name, Unread: true}
	}
	state := portState{Name: p.name, Up: word == "ACTIVE", WasUp: true, Status: word}
	if !state.Up {
		downs, known := p.downs.readNumber()
		state.WasUp = downs > 0 || !known
	}
	return state
}

// link is the PCI Express link of a function.
type link struct {
	speed *file
	width *file
	most  topology.PCIeLink // maximum of both ends
}

func (l *link) readLink() topology.PCIeLink {
	now := l.most
	now.Speed, now.Width = l.speed.readSpeed(), l.width.readWidth()
	return now
}

// newLink returns the link of the function in a directory; above is the directory of the port above, "" for
// none.
func newLink(sys fs.FS, dir, above string) link {
	l := link{
		speed: openFile(sys, path.Join(dir, "current_link_speed")),
		width: openFile(sys, path.Join(dir, "current_link_width")),
	}
	own := topology.ReadPCIeLink(sys, dir)
	l.most.MaxSpeed, l.most.MaxWidth = own.MaxSpeed, own.MaxWidth
	if above != "" {
		port := topology.ReadPCIeLink(sys, above)
		l.most.MaxSpeed = leastKnown(l.most.MaxSpeed, port.MaxSpeed)
		l.most.MaxWidth = leastKnown(l.most.MaxWidth, port.MaxWidth)
	}
	return l
}

// leastKnown returns the smaller known value; 0 if none is known.
func leastKnown[T int | float64](a, b T) T {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// source has the open files of a function.
type source struct {
	sys      fs.FS
	dir      string
	counters []counterFile
	netdevs  []netdev
	ports    []port
	unknown  []portState // ports whose kind could not be read
	link     link
	files    []*file // all of them
}

// counterFile is the file of a counter.
type counterFile struct {
	counter string
	*file
}

// aer are the names of rules on the totals of the AER files
// (Documentation/ABI/testing/sysfs-bus-pci-devices-aer).
var aer = map[string]string{
	"aer_correctable": "aer_dev_correctable", "aer_nonfatal": "aer_dev_nonfatal", "aer_fatal": "aer_dev_fatal",
}

// representor is the port name of a netdev that represents a function in switchdev mode: pf0vf1, pf0sf88,
// c1pf0 (__devlink_port_phys_port_name_get in net/devlink/port.c).
var representor = regexp.MustCompile(`^(c\d+)?pf\d+`)

// openSource opens the files of a function that exist now and that rules need.
func openSource(sys fs.FS, function topology.Address, rules []rule) *source {
	s := &source{sys: sys, dir: path.Join(topology.PCIDevices, function.String())}
	s.link = newLink(sys, s.dir, s.portAbove())
	s.files = append(s.files, s.link.speed, s.link.width)
	s.findNetdevs()
	ports := s.findPorts()
	for _, r := range rules {
		for _, name := range s.counterNames(r.Counter, ports) {
			s.addCounter(r.Counter, name)
		}
	}
	return s
}

// closeFiles closes all files.
func (s *source) closeFiles() {
	for _, f := range s.files {
		f.close()
	}
}

// openFile opens a file of the function.
func (s *source) openFile(elements ...string) *file {
	f := openFile(s.sys, path.Join(elements...))
	s.files = append(s.files, f)
	return f
}

// infiniband is the type of a netdev for IP over InfiniBand (ARPHRD_INFINIBAND in
// include/uapi/linux/if_arp.h). Its carrier is that of a partition's multicast group: the state of the port
// is that of the RDMA device.
const infiniband = "32"

func (s *source) findNetdevs() {
	folder := topology.NetFolder(s.sys, s.dir)
	for _, name := range topology.Names(s.sys, folder) {
		dir, title := path.Join(folder, name), "netdev "+quoteName(name)
		if kind, known := s.readKind(title, dir, "type"); !known || kind == infiniband {
			continue
		}
		if portName, err := fs.ReadFile(s.sys, dir+"/phys_port_name"); err == nil && representor.Match(portName) {
			continue
		}
		s.netdevs = append(s.netdevs, netdev{
			name: title, dir: dir, flags: s.openFile(dir, "flags"), carrier: s.openFile(dir, "carrier"),
			ups: s.openFile(dir, "carrier_up_count"),
		})
	}
}

// readKind reads a file that says of which kind a port with a title is; "" if it has no such file. While the
// file cannot be read, the state of the port is unknown, and the next look finds all files again.
func (s *source) readKind(title, dir, name string) (kind string, known bool) {
	content, err := fs.ReadFile(s.sys, path.Join(dir, name))
	known = err == nil || errors.Is(err, fs.ErrNotExist)
	if !known {
		s.unknown = append(s.unknown, portState{Name: title, Unread: true})
	}
	return strings.TrimSpace(string(content)), known
}

// quoteName returns the name of a netdev or RDMA device for people: a pod can have given it any name.
func quoteName(name string) string {
	if topology.IsPassable(name) {
		return name
	}
	return strconv.Quote(name)
}

// findPorts returns the directories of all ports of RDMA devices.
func (s *source) findPorts() (dirs []string) {
	for _, name := range s.listNames("infiniband") {
		for _, number := range s.listNames("infiniband", name, "ports") {
			dir := path.Join(s.dir, "infiniband", name, "ports", number)
			dirs = append(dirs, dir)
			title := "port " + quoteName(name) + "/" + number
			if layer, known := s.readKind(title, dir, "link_layer"); known && layer == "InfiniBand" {
				p := port{name: title, state: s.openFile(dir, "state"), downs: s.openFile(dir, "counters", "link_downed")}
				if !p.state.missing {
					s.ports = append(s.ports, p)
				}
			}
		}
	}
	return dirs
}

// portAbove returns the directory of the PCI function that the link of the function leads to; "" for a
// function on the root bus.
func (s *source) portAbove() string {
	target, err := fs.ReadLink(s.sys, s.dir)
	if err != nil {
		return ""
	}
	parent, err := topology.ParseAddress(path.Base(path.Dir(target)))
	if err != nil {
		return ""
	}
	return path.Join(topology.PCIDevices, parent.String())
}

// counterNames returns the names of the files that may have a counter.
func (s *source) counterNames(counter string, ports []string) (names []string) {
	name, isAER := aer[counter]
	switch {
	case isAER:
		return []string{path.Join(s.dir, name)}
	case counter == "carrier_changes":
		for _, n := range s.netdevs {
			names = append(names, path.Join(n.dir, counter))
		}
	default:
		for _, dir := range ports {
			names = append(names, path.Join(dir, "counters", counter), path.Join(dir, "hw_counters", counter))
		}
	}
	return names
}

// addCounter adds the counter in a file, if the file can be read.
func (s *source) addCounter(counter, name string) {
	for _, c := range s.counters {
		if c.name == name {
			return // another rule has it
		}
	}
	f := s.openFile(name)
	if _, ok := f.readNumber(); ok {
		s.counters = append(s.counters, counterFile{counter, f})
	}
}

// listNames returns the entries of a directory of the function.
func (s *source) listNames(elements ...string) []string {
	return topology.Names(s.sys, path.Join(s.dir, path.Join(elements...)))
}

// file is an open file of sysfs. Each read at its start gives the present content; after the removal of the
// device it fails (ENODEV). An open file does not keep the device.
type file struct {
	name    string
	reader  io.ReadSeeker // nil if the file does not exist or cannot be read
	missing bool          // the file does not exist
	page    [1024]byte    // the content; the longest files, of AER, have less than half
	io.Closer
}

// openFile opens a file.
func openFile(sys fs.FS, name string) *file {
	f := &file{name: name}
	opened, err := sys.Open(name)
	if err != nil {
		f.missing = errors.Is(err, fs.ErrNotExist)
		return f
	}
	f.Closer = opened
	f.reader, _ = opened.(io.ReadSeeker)
	return f
}

func (f *file) close() {
	if f.Closer != nil {
		_ = f.Close()
	}
}

// trimmedText returns the content. It reads once: a second read to see the end
// would make the kernel ask the device again.
func (f *file) trimmedText() (string, bool) {
	if f.reader == nil {
		return "", false
	}
	if _, err := f.reader.Seek(0, io.SeekStart); err != nil {
		return "", false
	}
	n, err := f.reader.Read(f.page[:])
	if err != nil && !errors.Is(err, io.EOF) {
		return "", false
	}
	return strings.TrimSpace(string(f.page[:n])), true
}

// readNumber returns the last number of the content: the only one, or the total "TOTAL_ERR_COR 3" in the last
// line.
func (f *file) readNumber() (uint64, bool) {
	text, ok := f.trimmedText()
	if !ok {
		return 0, false
	}
	value, err := strconv.ParseUint(text[strings.LastIndexAny(text, " \n")+1:], 0, 64)
	return value, err == nil
}

// readWord returns the word of a numbered value: "ACTIVE" of "4: ACTIVE".
func (f *file) readWord() (string, bool) {
	text, ok := f.trimmedText()
	_, word, _ := strings.Cut(text, ": ")
	return word, ok
}

func (f *file) readSpeed() float64 {
	text, _ := f.trimmedText()
	return topology.ParseLinkSpeed(text)
}

func (f *file) readWidth() int {
	text, _ := f.trimmedText()
	return topology.ParseLinkWidth(text)
}
