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
		value, ok := s.readNumber(c.File)
		if ok {
			now.Counters[c] = value
		}
		whole = whole && ok
	}
	now.Ports = slices.Clone(s.unknown)
	for _, n := range s.netdevs {
		if port, isUp := s.readNetdev(n); isUp {
			now.Ports = append(now.Ports, port)
		}
	}
	for _, p := range s.ports {
		now.Ports = append(now.Ports, s.readPort(p))
	}
	now.Link = topology.ReadPCIeLink(s.sys, s.dir)
	now.Link.MaxSpeed, now.Link.MaxWidth = s.most.MaxSpeed, s.most.MaxWidth
	return now, whole && !slices.ContainsFunc(now.Ports, func(p portState) bool { return p.Unread })
}

// titled is a netdev, or a port of an RDMA device.
type titled struct{ title, dir string } // "netdev eth0", "port mlx5_0/1"

// readNetdev reads the state of a netdev, and reports whether the netdev is administratively up (IFF_UP in
// flags): the carrier of another netdev says nothing about the port. carrier_up_count counts since the
// creation of the netdev (Documentation/ABI/testing/sysfs-class-net).
func (s *source) readNetdev(n titled) (portState, bool) {
	const up = 1 // IFF_UP in include/uapi/linux/if.h
	flags, known := s.readNumber(n.dir, "flags")
	if known && flags&up == 0 {
		return portState{}, false
	}
	carrier, ok := s.readNumber(n.dir, "carrier")
	if !known || !ok {
		return portState{Name: n.title, Unread: true}, true
	}
	p := portState{Name: n.title, Up: carrier != 0, WasUp: true, Status: "without carrier"}
	if !p.Up {
		ups, known := s.readNumber(n.dir, "carrier_up_count")
		p.WasUp = ups > 0 || !known
	}
	return p, true
}

// readPort reads the state of a port with link layer InfiniBand, "4: ACTIVE"
// (Documentation/ABI/stable/sysfs-class-infiniband). The state of a RoCE port is that of a netdev.
func (s *source) readPort(p titled) portState {
	text, ok := s.readText(p.dir, "state")
	_, word, _ := strings.Cut(text, ": ")
	if !ok || word == "" {
		return portState{Name: p.title, Unread: true}
	}
	state := portState{Name: p.title, Up: word == "ACTIVE", WasUp: true, Status: word}
	if !state.Up {
		downs, known := s.readNumber(p.dir, "counters/link_downed")
		state.WasUp = downs > 0 || !known
	}
	return state
}

// source has the files of a function.
type source struct {
	sys      fs.FS
	dir      string
	counters []counterKey
	netdevs  []titled
	ports    []titled          // with link layer InfiniBand
	unknown  []portState       // ports whose kind could not be read
	most     topology.PCIeLink // maximum of both ends of the link
}

// aer are the names of rules on the totals of the AER files
// (Documentation/ABI/testing/sysfs-bus-pci-devices-aer).
var aer = map[string]string{
	"aer_correctable": "aer_dev_correctable", "aer_nonfatal": "aer_dev_nonfatal", "aer_fatal": "aer_dev_fatal",
}

// representor is the port name of a netdev that represents a function in switchdev mode: pf0vf1, pf0sf88,
// c1pf0 (__devlink_port_phys_port_name_get in net/devlink/port.c).
var representor = regexp.MustCompile(`^(c\d+)?pf\d+`)

// newSource finds the files of a function that exist now and that rules need.
func newSource(sys fs.FS, function topology.Address, rules []rule) *source {
	s := &source{sys: sys, dir: path.Join(topology.PCIDevices, function.String())}
	s.most = s.maximumLink()
	s.findNetdevs()
	ports := s.findPorts()
	for _, r := range rules {
		for _, name := range s.counterNames(r.Counter, ports) {
			key := counterKey{r.Counter, name}
			if _, ok := s.readNumber(name); ok && !slices.Contains(s.counters, key) { // two rules can have one
				s.counters = append(s.counters, key)
			}
		}
	}
	return s
}

// infiniband is the type of a netdev for IP over InfiniBand (ARPHRD_INFINIBAND in
// include/uapi/linux/if_arp.h). Its carrier is that of a partition's multicast group: the state of the port
// is that of the RDMA device.
const infiniband = "32"

func (s *source) findNetdevs() {
	folder := topology.NetFolder(s.sys, s.dir)
	for _, name := range topology.Names(s.sys, folder) {
		n := titled{"netdev " + quoteName(name), path.Join(folder, name)}
		kind, known := s.readKind(n, "type")
		if !known || kind == infiniband || s.lacks(n.dir, "flags") || s.lacks(n.dir, "carrier") {
			continue
		}
		if portName, ok := s.readText(n.dir, "phys_port_name"); ok && representor.MatchString(portName) {
			continue
		}
		s.netdevs = append(s.netdevs, n)
	}
}

// readKind reads a file that says of which kind a port is; "" if it has no such file. While the file cannot
// be read, the state of the port is unknown, and the next look finds all files again.
func (s *source) readKind(port titled, name string) (kind string, known bool) {
	kind, known = s.readText(port.dir, name)
	if !known && !s.lacks(port.dir, name) {
		s.unknown = append(s.unknown, portState{Name: port.title, Unread: true})
		return "", false
	}
	return kind, true
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
	devices := path.Join(s.dir, "infiniband")
	for _, name := range topology.Names(s.sys, devices) {
		ports := path.Join(devices, name, "ports")
		for _, number := range topology.Names(s.sys, ports) {
			p := titled{"port " + quoteName(name) + "/" + number, path.Join(ports, number)}
			dirs = append(dirs, p.dir)
			layer, known := s.readKind(p, "link_layer")
			if known && layer == "InfiniBand" && !s.lacks(p.dir, "state") {
				s.ports = append(s.ports, p)
			}
		}
	}
	return dirs
}

// maximumLink returns the maximum of both ends of the function's link; on the root bus a link has one end.
func (s *source) maximumLink() topology.PCIeLink {
	most := topology.ReadPCIeLink(s.sys, s.dir)
	target, err := fs.ReadLink(s.sys, s.dir)
	if err != nil {
		return most
	}
	if port, err := topology.ParseAddress(path.Base(path.Dir(target))); err == nil {
		above := topology.ReadPCIeLink(s.sys, path.Join(topology.PCIDevices, port.String()))
		most.MaxSpeed = leastKnown(most.MaxSpeed, above.MaxSpeed)
		most.MaxWidth = leastKnown(most.MaxWidth, above.MaxWidth)
	}
	return most
}

// leastKnown returns the smaller known value; 0 if none is known.
func leastKnown[T int | float64](a, b T) T {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
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

// lacks reports whether a file does not exist.
func (s *source) lacks(elements ...string) bool {
	_, err := fs.Stat(s.sys, path.Join(elements...))
	return errors.Is(err, fs.ErrNotExist)
}

// readText returns the content of a file, false if it cannot be read. It reads once: a second read to see the
// end would make the kernel ask the device again.
func (s *source) readText(elements ...string) (string, bool) {
	file, err := s.sys.Open(path.Join(elements...))
	if err != nil {
		return "", false
	}
	defer file.Close()
	var page [1024]byte // the longest files, of AER, have less than half
	n, err := file.Read(page[:])
	return strings.TrimSpace(string(page[:n])), err == nil || errors.Is(err, io.EOF)
}

// readNumber returns the last number of a file: the only one, or the total "TOTAL_ERR_COR 3" in the last
// line.
func (s *source) readNumber(elements ...string) (uint64, bool) {
	text, ok := s.readText(elements...)
	value, err := strconv.ParseUint(text[strings.LastIndexAny(text, " \n")+1:], 0, 64)
	return value, ok && err == nil
}
