// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/topology"
)

// shape is the part of a node that neither pods nor the health of devices change: the devices at their
// places. A shape is immutable and may be shared.
//
// The tree contains only the devices and the bridges that they share. Placement depends on nothing else, so
// this tree and the node's own give equal results, as the test shows on recorded machines. The object has the
// addresses of PFs only. VFs get addresses after those of the PFs of their bus, PF by PF and in numerical
// order, like real devices (PCI Express Base Specification, "VF Offset" and "VF Stride").
type shape struct {
	// devices are the devices of the object's resources, in the object's order. The ID is the name of the
	// resource and the number, "amd.com/gpu/3".
	devices  *devicemanager.Devices
	tree     *topology.Tree
	links    []topology.Link
	switches devicemanager.Switches // with same-switch pairs
}

// newShape reads a published object, which must be valid (Spec.Validate). It returns an error that names the
// value if a kind, hint, set, path or address is malformed, or names a missing device.
func newShape(spec *v1alpha1.Spec) (*shape, error) {
	b := &builder{spec: spec, byAddress: map[topology.Address]*topology.Device{}, cards: map[string]bool{}}
	var err error
	b.spots, err = readSpots(spec)
	if err != nil {
		return nil, err
	}
	var resources []model.Resource
	for i := range spec.Resources {
		r, err := readResource(&spec.Resources[i])
		if err == nil {
			err = b.addResource(i, r.Devices)
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", spec.Resources[i].Name, err)
		}
		resources = append(resources, r)
	}
	var nodes []int
	for _, n := range spec.NUMANodes {
		nodes = append(nodes, n.Number)
	}
	s := &shape{devices: devicemanager.NewDevices(resources), tree: topology.Assemble(b.functions, b.at, nodes)}
	s.switches = b.findSwitches(s.devices)
	s.links, err = readLinks(spec, resources)
	return s, err
}

// findSwitches returns the switches with same-switch pairs.
func (b *builder) findSwitches(devices *devicemanager.Devices) devicemanager.Switches {
	all := make(devicemanager.Switches, len(b.spec.Switches))
	for i := range all {
		all[i] = [2]devicemanager.Set{devices.NewSet(), devices.NewSet()}
	}
	for i, r := range devices.Resources {
		for number, spot := range b.spots[i] {
			if spot.at >= 0 {
				all[spot.at][r.Kind].Insert(r.First + number)
			}
		}
	}
	var switches devicemanager.Switches
	for i, on := range all {
		if !b.spec.Switches[i].Alone && on[model.GPU].Len() > 0 && on[model.VF].Len() > 0 {
			switches = append(switches, on)
		}
	}
	return switches
}

// readLinks returns the object's links between GPUs.
func readLinks(spec *v1alpha1.Spec, resources []model.Resource) ([]topology.Link, error) {
	byID := map[string]topology.Address{}
	if len(spec.Links) == 0 {
		return nil, nil
	}
	for _, r := range resources {
		for _, d := range r.Devices {
			byID[d.ID] = d.Address
		}
	}
	var all []topology.Link
	for _, l := range spec.Links {
		a, knownA := byID[string(l.A)]
		b, knownB := byID[string(l.B)]
		if !knownA || !knownB {
			return nil, fmt.Errorf("link %s %s: no such device", l.A, l.B)
		}
		all = append(all, topology.Link{A: a, B: b, Type: topology.LinkType(l.Type), Hops: l.Hops, Count: l.Count})
	}
	return all, nil
}

// spotOf is the position of a device.
type spotOf struct {
	at         int // index of the switch; -1 for a device without a switch
	place      topology.Place
	redirected int
}

// readSpots returns the positions of each resource's devices.
func readSpots(spec *v1alpha1.Spec) ([][]spotOf, error) {
	spots := make([][]spotOf, len(spec.Resources))
	for i, r := range spec.Resources {
		spots[i] = slices.Repeat([]spotOf{{at: -1}}, r.Devices)
	}
	put := func(s spotOf, devices map[string]v1alpha1.Set) error {
		for i, r := range spec.Resources {
			list, err := numbersBelow(devices[r.Name], r.Devices)
			if err != nil {
				return fmt.Errorf("read %s of switch %s: %w", r.Name, spec.Switches[s.at].Name, err)
			}
			for _, device := range list {
				spots[i][device] = s
			}
		}
		return nil
	}
	for at, sw := range spec.Switches {
		numa := topology.NUMANode{}
		if sw.NUMA != nil {
			numa = topology.Node(*sw.NUMA)
		}
		place, err := readPath(sw.Path, numa)
		if err != nil {
			return nil, err
		}
		if err := put(spotOf{at, place, sw.Redirected}, sw.Devices); err != nil {
			return nil, err
		}
		for _, below := range sw.Below {
			further := place
			if below.Path != "" {
				further, err = readPath(sw.Path+"/"+below.Path, numa)
				if err != nil {
					return nil, err
				}
			}
			if err := put(spotOf{at, further, below.Redirected}, below.Devices); err != nil {
				return nil, err
			}
		}
	}
	return spots, nil
}

// readPath reads a path of the object.
func readPath(path string, numa topology.NUMANode) (topology.Place, error) {
	names := strings.Split(path, "/")
	if path == v1alpha1.UnknownPath {
		return topology.Place{}, nil
	}
	place := topology.Place{RootComplex: names[0], NUMA: numa}
	for _, name := range names[1:] {
		bridge, err := topology.ParseAddress(name)
		if err != nil {
			return place, fmt.Errorf("read path %s: %w", path, err)
		}
		place.Bridges = append(place.Bridges, bridge)
	}
	return place, nil
}

// numbersBelow returns the devices of a published set, ascending, or an error if a number is not below
// devices.
func numbersBelow(set v1alpha1.Set, devices int) ([]int, error) {
	ranges, err := set.Ranges(v1alpha1.MaxDevices)
	if err != nil || len(ranges) == 0 {
		return nil, err
	}
	if last := ranges[len(ranges)-1].Last; last >= devices {
		return nil, fmt.Errorf("device %d of %d", last, devices)
	}
	return set.List(devices)
}

// Domains of functions that the object does not name. Real domains are smaller: VMD and Hyper-V use 16 bits
// and a few more.
const (
	unnamed   = 0xf0000000 // and above (unnamedOf): functions without address
	otherCard = 0xff000000 // an invented card below each bridge, which makes the bridge shared
	ownPort   = 0xfe000000 // an invented port above a function that redirects
)

// networkClass is the class of the functions of NICs: Ethernet controller.
const networkClass topology.Class = 0x020000

// builder makes the functions of the tree.
type builder struct {
	spec      *v1alpha1.Spec
	spots     [][]spotOf
	functions []*topology.Device
	at        []topology.Place
	byAddress map[topology.Address]*topology.Device
	cards     map[string]bool           // bridges with an invented card, by path
	vfs       map[topology.Address]int  // by PF, the device and function number of its newest VF
	taken     map[topology.Address]bool // addresses in the object, and those assigned to VFs
}

// addResource creates the functions of a resource's devices, and places the devices there.
func (b *builder) addResource(i int, devices []model.Device) error {
	r := &b.spec.Resources[i]
	functions, err := functionsOf(r)
	if err != nil {
		return err
	}
	if len(r.Addresses) != 0 && len(r.Addresses) != len(functions) {
		return fmt.Errorf("%d addresses of %d functions", len(r.Addresses), len(functions))
	}
	degraded, err := numbersBelow(r.Degraded, len(functions))
	if err != nil {
		return fmt.Errorf("read degraded functions: %w", err)
	}
	slow := map[int]bool{}
	for _, f := range degraded {
		slow[f] = true
	}
	for f, members := range functions {
		if len(members) == 0 {
			continue
		}
		spot := b.spots[i][members[0]]
		address := unnamedOf(max(spot.at, 0), i, f)
		if len(r.Addresses) > 0 {
			address, err = topology.ParseAddress(r.Addresses[f])
			if err != nil {
				return err
			}
		}
		function := b.functionAt(address, r.Kind, spot)
		if slow[f] {
			function.PCIe = topology.PCIeLink{Width: 1, MaxWidth: 2}
		}
		for _, n := range members {
			devices[n].ID, devices[n].Address = fmt.Sprintf("%s/%d", r.Name, n), address
			if r.Kind == v1alpha1.VF {
				devices[n].Address = b.addVF(function, spot)
			}
		}
	}
	return nil
}

// unnamedOf returns the address of a function without an address in the object, from the indices of its
// switch, its resource and itself, each below its maximum (of package v1alpha1).
func unnamedOf(at, resource, function int) topology.Address {
	number := (at*v1alpha1.MaxResources+resource)*v1alpha1.MaxFunctions + function
	return topology.Address{Domain: unnamed + uint32(number)}
}

// functionsOf lists the devices of each physical function. Every device belongs to one.
func functionsOf(r *v1alpha1.Resource) ([][]int, error) {
	var functions [][]int
	of, count := make([]bool, r.Devices), 0
	for _, set := range r.Functions {
		members, err := numbersBelow(set, r.Devices)
		if err != nil {
			return nil, fmt.Errorf("read functions: %w", err)
		}
		for _, n := range members {
			if of[n] {
				return nil, fmt.Errorf("read functions: device %d is of two", n)
			}
			of[n] = true
		}
		functions, count = append(functions, members), count+len(members)
	}
	if len(functions) > 0 && count != r.Devices {
		return nil, fmt.Errorf("read functions: they have %d of %d devices", count, r.Devices)
	}
	if len(functions) > 0 {
		return functions, nil
	}
	for n := range r.Devices {
		functions = append(functions, []int{n})
	}
	return functions, nil
}

// functionAt returns a physical function, created on first use.
func (b *builder) functionAt(address topology.Address, kind v1alpha1.Kind, s spotOf) *topology.Device {
	if f := b.byAddress[address]; f != nil {
		return f
	}
	f, redirected := &topology.Device{Address: address}, topology.ACSCompletions
	if kind == v1alpha1.VF {
		f.Class, redirected = networkClass, topology.ACSRequests
	}
	b.byAddress[address] = f
	b.putFunction(f, b.placeAt(s, redirected))
	return f
}

// placeAt returns the place of a function at a spot, with the ports that redirect requests or completions.
func (b *builder) placeAt(s spotOf, redirected uint16) topology.Place {
	place := s.place
	for i := range place.Bridges {
		b.shareBridge(place, i)
	}
	switch {
	case s.redirected == 0:
	case s.redirected < len(place.Bridges):
		b.addPort(place.Bridges[s.redirected], redirected, topology.Place{
			RootComplex: place.RootComplex, Bridges: place.Bridges[:s.redirected], NUMA: place.NUMA,
		})
	default:
		own := unusedAddress(ownPort, len(b.functions))
		b.addPort(own, redirected, place)
		place.Bridges = append(place.Bridges[:len(place.Bridges):len(place.Bridges)], own)
	}
	return place
}

// shareBridge adds an invented card below a bridge: the object's bridges are shared with further cards.
func (b *builder) shareBridge(place topology.Place, bridge int) {
	path := fmt.Sprint(place.RootComplex, place.Bridges[:bridge+1])
	if b.cards[path] {
		return
	}
	b.cards[path] = true
	for range 2 { // a single port would count as part of the device
		b.putFunction(&topology.Device{Address: unusedAddress(otherCard, len(b.functions))}, topology.Place{
			RootComplex: place.RootComplex, Bridges: place.Bridges[:bridge+1],
		})
	}
}

// addPort adds a port that redirects the requests of NICs or the completions of GPUs: those of the other
// kind below a shared port may pass.
func (b *builder) addPort(port topology.Address, redirected uint16, place topology.Place) {
	d := b.byAddress[port]
	if d == nil {
		d = &topology.Device{Address: port, Class: topology.PortClass, ACS: topology.ACSRedirect}
		b.byAddress[port] = d
		b.putFunction(d, place)
	}
	d.Control |= redirected
}

// putFunction adds a function to the tree, unless it has no switch and so no known place.
func (b *builder) putFunction(d *topology.Device, at topology.Place) {
	if at.RootComplex == "" {
		return
	}
	b.functions, b.at = append(b.functions, d), append(b.at, at)
}

// unusedAddress returns an address that no other function has, in a slot of its own.
func unusedAddress(domain uint32, number int) topology.Address {
	return topology.Address{Domain: domain + uint32(number)}
}

// addVF adds the next VF of a PF, after the PFs of its bus and the VFs of earlier PFs, at an unused address:
// the replicas of a shared PF can exceed its VFs in PCI.
func (b *builder) addVF(pf *topology.Device, s spotOf) topology.Address {
	if b.vfs == nil {
		b.vfs, b.taken = b.beforeVFs()
	}
	address := topology.Address{}
	for address == (topology.Address{}) || b.taken[address] {
		b.vfs[pf.Address]++
		n := b.vfs[pf.Address]
		address = topology.Address{
			Domain: pf.Address.Domain, Bus: pf.Address.Bus + uint8(n>>8),
			Device: uint8(n >> 3 & 31), Function: uint8(n & 7),
		}
	}
	b.taken[address] = true
	pf.VFs = append(pf.VFs, address)
	b.putFunction(&topology.Device{Address: address, PF: pf.Address}, s.place)
	return address
}

// beforeVFs returns, for each PF in the object, the device and function number before that of its first VF,
// and all addresses in the object.
func (b *builder) beforeVFs() (before map[topology.Address]int, named map[topology.Address]bool) {
	last, vfs := map[topology.Address]int{}, map[topology.Address]int{}
	before, named = map[topology.Address]int{}, map[topology.Address]bool{}
	for _, spots := range b.spots {
		for _, s := range spots {
			for _, bridge := range s.place.Bridges {
				named[bridge] = true
			}
		}
	}
	for i := range b.spec.Resources {
		r := &b.spec.Resources[i]
		functions, _ := functionsOf(r) // other code reports its errors
		for f, name := range r.Addresses {
			a, err := topology.ParseAddress(name)
			if err != nil {
				continue
			}
			named[a] = true
			last[busOf(a)] = max(last[busOf(a)], int(a.Device)<<3|int(a.Function))
			if r.Kind == v1alpha1.VF && f < len(functions) {
				vfs[a] += len(functions[f])
			}
		}
	}
	for _, pf := range slices.SortedFunc(maps.Keys(vfs), topology.Address.Compare) {
		before[pf] = last[busOf(pf)]
		last[busOf(pf)] += vfs[pf]
	}
	return before, named
}

func busOf(a topology.Address) topology.Address {
	return topology.Address{Domain: a.Domain, Bus: a.Bus}
}
