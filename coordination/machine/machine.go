// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Machine has a node's devices at their places. A Machine is immutable and may be shared.
type Machine struct {
	Tree  *topology.Tree
	Links []topology.Link
	// Devices are the devices of the object's resources, in the object's order, each by its number. The ID is
	// the name of the resource and the number, "amd.com/gpu/3".
	Devices [][]placement.Device
	// Switches has, for each device, an index in the object's switches; -1 for a device without a switch.
	Switches [][]int
}

// New converts a published object, which must be valid (Spec.Validate). It returns an error that names the
// value if a set, path or address is malformed, or names a missing device.
func New(spec *v1alpha1.Spec) (*Machine, error) {
	b := &builder{spec: spec, byAddress: map[topology.Address]*topology.Device{}, cards: map[string]bool{}}
	m := &Machine{}
	for i := range spec.Resources {
		m.Switches = append(m.Switches, slices.Repeat([]int{-1}, spec.Resources[i].Devices))
	}
	var err error
	if b.spots, err = readSpots(spec, m.Switches); err != nil {
		return nil, err
	}
	for i := range spec.Resources {
		devices, err := b.resource(i)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", spec.Resources[i].Name, err)
		}
		m.Devices = append(m.Devices, devices)
	}
	var nodes []int
	for _, n := range spec.NUMANodes {
		nodes = append(nodes, n.Number)
	}
	m.Tree = topology.Assemble(b.functions, b.at, nodes)
	m.Links, err = links(spec, m.Devices)
	return m, err
}

// links returns the object's links between GPUs.
func links(spec *v1alpha1.Spec, devices [][]placement.Device) ([]topology.Link, error) {
	byID := map[string]topology.Address{}
	if len(spec.Links) == 0 {
		return nil, nil
	}
	for _, list := range devices {
		for _, d := range list {
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
	at         int // index of the switch, for invented addresses of devices
	place      topology.Place
	redirected int
}

// readSpots returns the positions of each resource's devices, and stores their switches.
func readSpots(spec *v1alpha1.Spec, switches [][]int) ([][]spotOf, error) {
	spots := make([][]spotOf, len(spec.Resources))
	for i, r := range spec.Resources {
		spots[i] = make([]spotOf, r.Devices)
	}
	put := func(s spotOf, devices map[string]v1alpha1.Set) error {
		for i, r := range spec.Resources {
			list, err := Numbers(devices[r.Name], r.Devices)
			if err != nil {
				return fmt.Errorf("read %s of switch %s: %w", r.Name, spec.Switches[s.at].Name, err)
			}
			for _, device := range list {
				spots[i][device], switches[i][device] = s, s.at
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
				if further, err = readPath(sw.Path+"/"+below.Path, numa); err != nil {
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
	if path == unknown {
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

// Numbers returns the devices of a published set, ascending, or an error if a number is not below devices.
func Numbers(set v1alpha1.Set, devices int) ([]int, error) {
	ranges, err := set.Ranges(v1alpha1.MaxDevices)
	if err != nil || len(ranges) == 0 {
		return nil, err
	}
	if last := ranges[len(ranges)-1].Last; last >= devices {
		return nil, fmt.Errorf("device %d of %d", last, devices)
	}
	return set.List(devices)
}
