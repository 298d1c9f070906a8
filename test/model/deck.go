// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"
)

// mostOfRole is the largest number of containers of a role in a pod of the deck.
const mostOfRole = 3

// deck has the roles of the containers of a pod in the order of their admission: up to three init containers
// and sidecars in every order, or three of each, before one to three app containers.
var deck = newDeck()

func newDeck() (all [][]Role) {
	before := [][]Role{nil}
	for from := 0; from < len(before) && len(before[from]) < mostOfRole; from++ {
		for _, role := range []Role{Init, Sidecar} {
			before = append(before, append(slices.Clone(before[from]), role))
		}
	}
	before = append(before, slices.Concat(of(Init, mostOfRole), of(Sidecar, mostOfRole)))
	for _, roles := range before {
		for apps := range mostOfRole {
			all = append(all, slices.Concat(roles, of(App, 1+apps)))
		}
	}
	return all
}

// of returns a number of containers of a role.
func of(role Role, n int) []Role { return slices.Repeat([]Role{role}, n) }

// shape returns the roles of the containers of the next random pod: every second time of the deck, in turn.
func (k *Kubelet) shape() []Role {
	if k.uids%2 == 1 {
		return deck[k.uids/2%len(deck)]
	}
	roles := append(slices.Clone(kinds[k.random.IntN(len(kinds))]), App)
	if k.random.IntN(4) == 0 {
		roles = append(roles, App)
	}
	return roles
}
