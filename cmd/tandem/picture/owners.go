// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// colours is the number of colours of owners. More owners share colours and differ in their initials.
const colours = 12

// Mark is how the devices of an owner are marked.
type Mark struct {
	colour   int
	initials string // unique among the owners
}

// Palette keeps the mark of each owner from picture to picture.
type Palette map[string]Mark

// owners returns the owners of devices, sorted, and a mark for each.
func (n *Node) owners(root *box) ([]string, Palette) {
	near := neighbours(root)
	owners := slices.Sorted(maps.Keys(near))
	palette := n.Palette
	if palette == nil {
		palette = Palette{}
	}
	palette.assign(owners, near)
	return owners, palette
}

// neighbours returns, for each owner, the other owners on the same switch, or on the same host bridge for
// devices without a switch.
func neighbours(root *box) map[string]map[string]bool {
	near := map[string]map[string]bool{}
	for _, group := range root.cards() {
		var here []string
		for _, card := range group {
			for _, d := range card.Devices {
				if d.Owner != "" {
					here = append(here, d.Owner)
				}
			}
		}
		slices.Sort(here)
		here = slices.Compact(here)
		for _, a := range here {
			if near[a] == nil {
				near[a] = map[string]bool{}
			}
			for _, b := range here {
				near[a][b] = near[a][b] || a != b
			}
		}
	}
	return near
}

// assign forgets absent owners. A new owner gets the colour that the fewest neighbours have, and of those the
// least used. If two neighbours share a colour, the later one changes.
func (p Palette) assign(owners []string, near map[string]map[string]bool) {
	maps.DeleteFunc(p, func(owner string, _ Mark) bool { return !slices.Contains(owners, owner) })
	for _, owner := range owners {
		mark, known := p[owner]
		if known && !p.clash(owner, mark.colour, near[owner]) {
			continue
		}
		delete(p, owner)
		if !known {
			mark.initials = p.initials(owner)
		}
		mark.colour = p.leastUsed(near[owner])
		p[owner] = mark
	}
}

// clash reports whether a neighbour that sorts before owner has the colour.
func (p Palette) clash(owner string, colour int, near map[string]bool) bool {
	for other, mark := range p {
		if near[other] && other < owner && mark.colour == colour {
			return true
		}
	}
	return false
}

func (p Palette) leastUsed(near map[string]bool) int {
	var beside, used [colours]int
	for other, mark := range p {
		used[mark.colour]++
		if near[other] {
			beside[mark.colour]++
		}
	}
	best := 0
	for c := range colours {
		if cmp.Or(cmp.Compare(beside[c], beside[best]), cmp.Compare(used[c], used[best])) < 0 {
			best = c
		}
	}
	return best
}

// initials returns two or three characters that no other owner has: the first of the pod's name and the first
// of the name's last part, else the first and a number.
func (p Palette) initials(owner string) string {
	taken := map[string]bool{}
	for _, mark := range p {
		taken[mark.initials] = true
	}
	name := owner
	if parts := strings.Split(owner, "/"); len(parts) > 1 {
		name = parts[len(parts)-2]
	}
	name, _, _ = strings.Cut(name, ",") // of a plan: "pair 1, PIX"
	parts := strings.FieldsFunc(name, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	if len(parts) == 0 {
		parts = []string{"?"}
	}
	first, last := []rune(parts[0]), []rune(parts[len(parts)-1])
	if len(parts) == 1 {
		last = last[1:]
	}
	lengths := []int{1, 2}
	if len(last) > 0 && unicode.IsDigit(last[0]) {
		lengths = []int{2, 1} // train-12 is t12, not t1
	}
	for _, length := range lengths {
		if i := string(first[:1]) + string(last[:min(length, len(last))]); !taken[i] {
			return i
		}
	}
	for number := 1; ; number++ {
		if i := fmt.Sprint(string(first[:1]), number); !taken[i] {
			return i
		}
	}
}
