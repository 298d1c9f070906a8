// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"fmt"

	"github.com/tandem-k8s/tandem/cmd/internal/picture"
	"github.com/tandem-k8s/tandem/topology"
)

// Picture returns the node with the cards of the matrix, named as in the matrix.
func (m *Matrix) Picture(title string, tree *topology.Tree) *picture.Node {
	drawn := &picture.Node{Title: title, Tree: tree, Summary: m.summary()}
	for i, g := range m.GPUs {
		card := picture.Card{Kind: picture.GPU, Name: fmt.Sprintf("GPU%d", i), Detail: g.Model, Address: g.Address}
		for _, id := range g.devices() {
			card.Devices = append(card.Devices, picture.Device{ID: id, Address: g.Address})
		}
		drawn.Cards = append(drawn.Cards, card)
	}
	for i, nic := range m.NICs {
		card := picture.Card{
			Kind:    picture.NIC,
			Name:    fmt.Sprintf("NIC%d", i),
			Detail:  cmp.Or(nic.RDMA, nic.Netdev),
			Address: nic.Address,
		}
		for _, vf := range nic.VFs {
			card.Devices = append(card.Devices, picture.Device{
				ID: vf.String(), Address: vf, Detail: picture.Names(tree, vf),
			})
		}
		drawn.Cards = append(drawn.Cards, card)
	}
	return drawn
}

// summary counts the devices, and the GPUs that can have a pair on one switch or over C2C.
func (m *Matrix) summary() []string {
	vfs, near, c2c := 0, map[topology.Address]bool{}, map[topology.Address]bool{}
	for _, nic := range m.NICs {
		vfs += len(nic.VFs)
	}
	for _, d := range m.Distances {
		switch {
		case d.Distance == topology.C2C:
			c2c[d.GPU] = true
		case d.Distance.Direct():
			near[d.GPU] = true
		}
	}
	parts, devices := []string{fmt.Sprintf("GPUs %d", len(m.GPUs))}, 0
	for _, g := range m.GPUs {
		devices += len(g.devices())
	}
	if devices > len(m.GPUs) {
		parts = append(parts, fmt.Sprintf("partitions %d", devices))
	}
	parts = append(parts, fmt.Sprintf("NICs %d", len(m.NICs)), fmt.Sprintf("VFs %d", vfs))
	if len(c2c) > 0 { // then no GPU is below a switch
		return append(parts, fmt.Sprintf("GPUs with a NIC over NVLink-C2C %d", len(c2c)))
	}
	return append(parts, fmt.Sprintf("GPUs with a NIC on their switch %d", len(near)))
}

// devices returns the IDs of the allocatable devices: the partitions, or the GPU itself.
func (g *GPU) devices() []string {
	if len(g.Partitions) == 0 {
		return []string{g.ID}
	}
	return g.Partitions
}
