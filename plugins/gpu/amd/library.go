// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/tandem-k8s/tandem/topology"
)

// Library is AMD's system management library, a second source besides sysfs, implemented by package smi.
type Library interface {
	Facts(ctx context.Context) (Facts, error)
}

// Facts are the library's data.
type Facts struct {
	VRAM map[topology.Address]uint64 // bytes by card; 0 for unknown
	// of the way between two cards, the lower first, as in the KFD topology
	Weights map[[2]topology.Address]uint64
}

// startPatience is how long the library may take to initialise itself and answer, once, before GPUs are
// offered.
const startPatience = 2 * time.Second

// mostXGMI is the greatest weight for which a multiple of weightXGMI means XGMI hops only.
const mostXGMI = 3 * weightXGMI

// Consult queries the library once. Sysfs takes precedence: the next Discover returns a note for each
// difference. Links that sysfs does not show are added.
func (b *Backend) Consult(name string, library Library) {
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	facts, err := library.Facts(ctx)
	if err != nil {
		b.notes = append(b.notes, fmt.Sprintf("%s is of no use: %v; sysfs is read alone", name, err))
		return
	}
	differences, err := b.compare(facts)
	if err != nil {
		b.notes = append(b.notes, fmt.Sprintf("not compared with %s: %v", name, err))
		return
	}
	for _, d := range differences {
		b.notes = append(b.notes, fmt.Sprintf("%s differs from sysfs, which counts: %s", name, d))
	}
}

// compare returns the differences from sysfs, and keeps the additional links.
func (b *Backend) compare(facts Facts) (differences []string, err error) {
	cards, err := readCards(b.sys)
	if err != nil {
		return nil, err
	}
	for address := range cards {
		vram, known := facts.VRAM[address]
		here, err := ReadVRAM(b.sys, address)
		switch {
		case err != nil:
			return nil, err
		case !known:
			differences = append(differences, fmt.Sprintf("%s is not known to it", address))
		case vram != here && vram != 0 && here != 0:
			differences = append(differences, fmt.Sprintf("%s has %d bytes of VRAM, it says %d", address, here, vram))
		}
	}
	for address := range facts.VRAM {
		if _, ok := cards[address]; !ok {
			differences = append(differences, fmt.Sprintf("%s is not driven by amdgpu, and known to it", address))
		}
	}
	links, err := ReadLinks(b.sys)
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		pair := [2]topology.Address{l.A, l.B}
		if weight, ok := facts.Weights[pair]; ok && hops(int(weight)) != l.Hops {
			differences = append(differences,
				fmt.Sprintf("%s and %s are %d hops apart, it says weight %d", l.A, l.B, l.Hops, weight))
		}
		delete(facts.Weights, pair)
	}
	for pair, weight := range facts.Weights {
		// Few XGMI hops. A path over PCI Express has a weight of 20, the distance of its two NUMA nodes if any, and
		// 20 (kfd_crat.c).
		if weight > 0 && weight <= mostXGMI && weight%weightXGMI == 0 {
			b.links = append(b.links, topology.Link{
				A: pair[0], B: pair[1], Type: topology.XGMI, Hops: hops(int(weight)), Count: 1,
			})
		}
	}
	slices.SortFunc(b.links, func(a, b topology.Link) int { return cmp.Or(a.A.Compare(b.A), a.B.Compare(b.B)) })
	slices.Sort(differences)
	return differences, nil
}

// ReadVRAM returns the size of a card's memory in bytes (mem_info_vram_total, amdgpu_vram_mgr.c), 0 for
// unknown.
func ReadVRAM(sys fs.FS, card topology.Address) (uint64, error) {
	text, err := read(sys, path.Join(topology.PCIDevices, card.String(), "mem_info_vram_total"))
	if err != nil || text == "" {
		return 0, err
	}
	bytes, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read mem_info_vram_total of %s: %q is no number", card, text)
	}
	return bytes, nil
}
