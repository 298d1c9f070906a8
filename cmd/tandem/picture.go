package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/internal/picture"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/topology"
)

// picture is the node with the cards of the matrix, under the names that the matrix gives them.
func (n *node) picture(title string, m *matrix) *picture.Node {
	drawn := &picture.Node{Title: title, Tree: n.tree}
	for i, g := range m.GPUs {
		card := picture.Card{Kind: picture.GPU, Name: fmt.Sprintf("GPU%d", i), Detail: g.Model, Address: g.Address}
		for _, id := range g.devices() {
			card.Devices = append(card.Devices, picture.Device{ID: id, Address: g.Address})
		}
		drawn.Cards = append(drawn.Cards, card)
	}
	for i, nic := range m.NICs {
		card := picture.Card{Kind: picture.NIC, Name: fmt.Sprintf("NIC%d", i), Detail: cmp.Or(nic.RDMA, nic.Netdev), Address: nic.Address}
		for _, vf := range nic.VFs {
			card.Devices = append(card.Devices, picture.Device{ID: vf.String(), Address: vf, Detail: names(n.tree, vf)})
		}
		drawn.Cards = append(drawn.Cards, card)
	}
	return drawn
}

// devices are the IDs of what can be given to containers: the partitions, or the GPU itself.
func (g *gpuEntry) devices() []string {
	if len(g.Partitions) == 0 {
		return []string{g.ID}
	}
	return g.Partitions
}

// names are those of the RDMA devices and netdevs of a function.
func names(tree *topology.Tree, address topology.Address) string {
	d, ok := tree.Device(address)
	if !ok {
		return ""
	}
	return strings.Join(slices.Concat(d.RDMA, d.Netdevs), " ")
}

// fill puts what the plugins know into the picture of the machine. What no plugin offers stays as the machine has it.
func (n *node) fill(drawn *picture.Node, s status) {
	offered := map[topology.Address][]picture.Device{}
	kinds := map[topology.Address]picture.Kind{}
	for _, r := range s.Resources {
		if !r.Connected {
			drawn.Notes = append(drawn.Notes, fmt.Sprintf("The plugin of %s is away: its devices are shown as they were known last.", r.Name))
		}
		for _, d := range r.Devices {
			address, err := topology.ParseAddress(d.Address)
			if err != nil {
				continue // of a plugin that sent none
			}
			offered[address] = append(offered[address], picture.Device{
				ID: d.ID, Address: address, Detail: names(n.tree, address), Resource: r.Name, State: picture.State(d.State), Owner: d.Owner,
			})
			if r.Kind == string(coordination.VF) {
				kinds[address] = picture.NIC
			}
		}
	}
	rest := 0
	for i := range drawn.Cards {
		card := &drawn.Cards[i]
		card.Devices = slices.DeleteFunc(card.Devices, func(d picture.Device) bool { return len(offered[d.Address]) > 0 })
		rest += len(card.Devices)
	}
	if rest > 0 {
		drawn.Notes = append(drawn.Notes, fmt.Sprintf("Devices that no plugin offers have no state; there are %d.", rest))
	}
	for _, address := range slices.SortedFunc(maps.Keys(offered), topology.Address.Compare) {
		card := n.card(drawn, kinds[address], address)
		card.Devices = append(card.Devices, offered[address]...)
	}
	for _, card := range drawn.Cards {
		slices.SortStableFunc(card.Devices, func(a, b picture.Device) int { return a.Address.Compare(b.Address) })
	}
}

// card finds the card of a function, or makes one: for a NIC without RDMA, or what the machine does not have any more.
func (n *node) card(drawn *picture.Node, kind picture.Kind, address topology.Address) *picture.Card {
	if d, ok := n.tree.Device(address); ok {
		address = d.Function()
	}
	count := 0
	for i := range drawn.Cards {
		if drawn.Cards[i].Address == address {
			return &drawn.Cards[i]
		}
		if drawn.Cards[i].Kind == kind {
			count++
		}
	}
	name := [...]string{picture.GPU: "GPU", picture.NIC: "NIC"}[kind]
	drawn.Cards = append(drawn.Cards, picture.Card{Kind: kind, Name: fmt.Sprint(name, count), Detail: names(n.tree, address), Address: address})
	return &drawn.Cards[len(drawn.Cards)-1]
}
