// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/picture"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/topology"
)

// Fill puts what the plugins know into the picture of the machine. What no plugin offers stays as the machine
// has it.
func (s Status) Fill(drawn *picture.Node) {
	drawn.Summary = s.summary()
	if k := s.Kubelet; k != nil && k.State == KubeletDown {
		drawn.Notes = append(drawn.Notes,
			fmt.Sprintf("The kubelet is down: %s. Owners are those known last.", k.Why))
	}
	if text := s.Alignment.Unenforced(); text != "" {
		drawn.Notes = append(drawn.Notes, strings.ToUpper(text[:1])+text[1:]+".")
	}
	for _, d := range s.Degraded {
		drawn.Notes = append(drawn.Notes, fmt.Sprintf("Degraded: %s.", d))
	}
	for _, text := range s.Unsound() {
		drawn.Notes = append(drawn.Notes, text+".")
	}
	offered := map[topology.Address][]picture.Device{}
	kinds := map[topology.Address]picture.Kind{}
	for _, r := range s.Resources {
		if !r.Connected {
			drawn.Notes = append(drawn.Notes,
				fmt.Sprintf("The plugin of %s is away: its devices are shown as they were known last.", r.Name))
		}
		if r.Registered != nil && !*r.Registered {
			drawn.Notes = append(drawn.Notes, fmt.Sprintf("The kubelet does not use the devices of %s.", r.Name))
		}
		for _, d := range r.Devices {
			address, err := topology.ParseAddress(d.Address)
			if err != nil {
				continue // of a plugin that sent none
			}
			offered[address] = append(offered[address], picture.Device{
				ID: d.ID, Address: address, Resource: r.Name,
				Detail: strings.Join(slices.DeleteFunc([]string{
					picture.Names(drawn.Tree, address), d.Health, d.Reason,
				}, func(s string) bool { return s == "" }), ", "),
				State: picture.State(d.State), Owner: d.Owner,
			})
			if r.Kind == string(device.VF) {
				kinds[address] = picture.NIC
			}
		}
	}
	rest := 0
	for i := range drawn.Cards {
		card := &drawn.Cards[i]
		card.Devices = slices.DeleteFunc(card.Devices, func(d picture.Device) bool {
			return len(offered[d.Address]) > 0
		})
		rest += len(card.Devices)
	}
	if rest > 0 {
		drawn.Notes = append(drawn.Notes,
			fmt.Sprintf("Devices that no plugin offers have no state; there are %d.", rest))
	}
	for _, address := range slices.SortedFunc(maps.Keys(offered), topology.Address.Compare) {
		card := card(drawn, kinds[address], address)
		card.Devices = append(card.Devices, offered[address]...)
	}
	for _, card := range drawn.Cards {
		slices.SortStableFunc(card.Devices, func(a, b picture.Device) int { return a.Address.Compare(b.Address) })
	}
}

// card finds the card of a function, or makes one: for a NIC without RDMA, or what the machine does not have
// any more.
func card(drawn *picture.Node, kind picture.Kind, address topology.Address) *picture.Card {
	if d, ok := drawn.Tree.Device(address); ok {
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
	drawn.Cards = append(drawn.Cards, picture.Card{
		Kind: kind, Name: fmt.Sprint(name, count), Detail: picture.Names(drawn.Tree, address), Address: address,
	})
	return &drawn.Cards[len(drawn.Cards)-1]
}
