// SPDX-License-Identifier: Apache-2.0

package health

import (
	"errors"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// source has the open files of a function.
type source struct {
	sys      fs.FS
	dir      string
	counters []counterFile
	netdevs  []netdev
	ports    []port
	link     link
	files    []*file // all of them
	partial  bool    // a file could not be read that says whether others belong here
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

// find opens the files of a function that exist now and that rules need.
func find(sys fs.FS, function topology.Address, rules []Rule) *source {
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

// close closes all files.
func (s *source) close() {
	for _, f := range s.files {
		f.close()
	}
}

// open opens a file of the function.
func (s *source) open(elements ...string) *file {
	f := open(s.sys, path.Join(elements...))
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
		dir := path.Join(folder, name)
		if kind, known := s.kind(dir, "type"); !known || kind == infiniband {
			continue
		}
		if portName, err := fs.ReadFile(s.sys, dir+"/phys_port_name"); err == nil && representor.Match(portName) {
			continue
		}
		s.netdevs = append(s.netdevs, netdev{
			name: shown(name), dir: dir, flags: s.open(dir, "flags"), carrier: s.open(dir, "carrier"),
			ups: s.open(dir, "carrier_up_count"),
		})
	}
}

// kind reads a file that says of which kind a netdev or port is; "" if it has no such file. While the file
// cannot be read, the netdev or port is not judged, and the next look finds all files again.
func (s *source) kind(dir, name string) (kind string, known bool) {
	content, err := fs.ReadFile(s.sys, path.Join(dir, name))
	known = err == nil || errors.Is(err, fs.ErrNotExist)
	s.partial = s.partial || !known
	return strings.TrimSpace(string(content)), known
}

// shown returns the name of a netdev or RDMA device for people: a pod can have given it any name.
func shown(name string) string {
	if topology.IsPassable(name) {
		return name
	}
	return strconv.Quote(name)
}

// findPorts returns the directories of all ports of RDMA devices.
func (s *source) findPorts() (dirs []string) {
	for _, name := range s.names("infiniband") {
		for _, number := range s.names("infiniband", name, "ports") {
			dir := path.Join(s.dir, "infiniband", name, "ports", number)
			dirs = append(dirs, dir)
			if layer, known := s.kind(dir, "link_layer"); known && layer == "InfiniBand" {
				s.ports = append(s.ports, port{
					name: shown(name) + "/" + number, state: s.open(dir, "state"),
					downs: s.open(dir, "counters", "link_downed"),
				})
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
	f := s.open(name)
	if _, ok := f.number(); ok {
		s.counters = append(s.counters, counterFile{counter, f})
	}
}

// names returns the entries of a directory of the function.
func (s *source) names(elements ...string) []string {
	return topology.Names(s.sys, path.Join(s.dir, path.Join(elements...)))
}
