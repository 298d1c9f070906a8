// SPDX-License-Identifier: Apache-2.0

package health

import (
	"io/fs"
	"path"

	"github.com/tandem-k8s/tandem/topology"
)

// Sample are the values of a function at one moment.
type Sample struct {
	Counters map[Counter]uint64
	Ports    []Port
	Link     topology.PCIeLink // the maximum is that of both ends of the link
}

// Counter is a counter of a function; a function may have several ports.
type Counter struct {
	Name string // as in a [Rule]
	File string
}

// Port is a port of a function with a known state.
type Port struct {
	Name   string // "netdev eth0" or "port mlx5_0/1", for people
	Up     bool
	WasUp  bool // since the driver has created the port
	Status string
}

// text returns the state for people.
func (p Port) text() string { return p.Name + " is " + p.Status }

// read reads the values. Whole is false if a file can no longer be read, for example after a change of the
// driver: then the files are to be found again.
func (s *source) read() (sample Sample, whole bool) {
	sample.Counters, whole = make(map[Counter]uint64, len(s.counters)), !s.partial
	for _, c := range s.counters {
		if value, ok := c.number(); ok {
			sample.Counters[Counter{c.counter, c.name}] = value
		} else {
			whole = false
		}
	}
	for _, n := range s.netdevs {
		if port, known := n.read(); known {
			sample.Ports = append(sample.Ports, port)
		}
	}
	for _, p := range s.ports {
		if port, known := p.read(); known {
			sample.Ports = append(sample.Ports, port)
		}
	}
	sample.Link = s.link.read()
	return sample, whole
}

// netdev is a netdev of a function.
type netdev struct {
	name, dir           string
	flags, carrier, ups *file
}

// read reads the state of a netdev that is administratively up (IFF_UP in flags): the carrier of another
// netdev says nothing about the port. carrier_up_count counts since the netdev's creation
// (Documentation/ABI/testing/sysfs-class-net).
func (n *netdev) read() (Port, bool) {
	const up = 1 // IFF_UP in include/uapi/linux/if.h
	if flags, ok := n.flags.number(); !ok || flags&up == 0 {
		return Port{}, false
	}
	carrier, ok := n.carrier.number()
	if !ok {
		return Port{}, false
	}
	p := Port{Name: "netdev " + n.name, Up: carrier != 0, WasUp: true, Status: "without carrier"}
	if !p.Up {
		ups, known := n.ups.number()
		p.WasUp = ups > 0 || !known
	}
	return p, true
}

// port is a port with link layer InfiniBand of an RDMA device. The state of a RoCE port is that of a netdev.
type port struct {
	name         string // "mlx5_0/1"
	state, downs *file
}

// read reads the state, "4: ACTIVE" (Documentation/ABI/stable/sysfs-class-infiniband).
func (p *port) read() (Port, bool) {
	word, ok := p.state.word()
	if !ok || word == "" {
		return Port{}, false
	}
	state := Port{Name: "port " + p.name, Up: word == "ACTIVE", WasUp: true, Status: word}
	if !state.Up {
		downs, known := p.downs.number()
		state.WasUp = downs > 0 || !known
	}
	return state, true
}

// link is the PCI Express link of a function.
type link struct {
	speed *file
	width *file
	most  topology.PCIeLink // maximum of both ends
}

func (l *link) read() topology.PCIeLink {
	now := l.most
	now.Speed, now.Width = l.speed.speed(), l.width.width()
	return now
}

// newLink returns the link of the function in a directory; above is the directory of the port above, "" for
// none.
func newLink(sys fs.FS, dir, above string) link {
	l := link{
		speed: open(sys, path.Join(dir, "current_link_speed")),
		width: open(sys, path.Join(dir, "current_link_width")),
	}
	own := topology.ReadPCIeLink(sys, dir)
	l.most.MaxSpeed, l.most.MaxWidth = own.MaxSpeed, own.MaxWidth
	if above != "" {
		port := topology.ReadPCIeLink(sys, above)
		l.most.MaxSpeed = least(l.most.MaxSpeed, port.MaxSpeed)
		l.most.MaxWidth = least(l.most.MaxWidth, port.MaxWidth)
	}
	return l
}

// least returns the smaller known value; 0 if none is known.
func least[T int | float64](a, b T) T {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
