// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
)

// Sizes, in pixels.
const (
	cardWidth  = 124 // two NUMA nodes of four switches fit side by side in the widest layout
	cardHead   = 58
	cellWidth  = 23 // room for an owner's initials
	cellHeight = 16
	cellGap    = 4
	cellsInRow = (cardWidth - 2*padding + cellGap) / (cellWidth + cellGap)
	padding    = 10
	gap        = 10
	boxHead    = 26

	pairWidth = 2*cardWidth + gap // a GPU beside its NIC
	fewCards  = 6                 // on one switch; more cards use rows as wide as the space
)

// Wide, middle and Narrow are widths of a picture in pixels: for a screen of 1280 pixels, for half of a
// screen, and for a small screen.
const (
	Wide   = 1248
	middle = 640
	Narrow = 468
)

// placeBoxes sets the position of each box, from the inside out.
func (b *box) placeBoxes(width int) {
	if b.card != nil {
		b.width, b.height = cardWidth, cardHead
		if n := len(b.card.Devices); n > 0 && !b.card.isWhole() {
			rows := (n + cellsInRow - 1) / cellsInRow
			b.height += rows*(cellHeight+cellGap) + padding - cellGap
		}
		return
	}
	inner := width - 2*padding
	if b.onlyCards() && len(b.boxes) <= fewCards && inner > 2*pairWidth {
		inner = pairWidth
	}
	for _, c := range b.boxes {
		c.placeBoxes(inner)
	}
	y := b.headHeight()
	for _, row := range evenRows(b.boxes, inner) {
		x, height := padding, 0
		for _, c := range row {
			c.x, c.y = x, y
			x += c.width + gap
			height = max(height, c.height)
		}
		for _, c := range row {
			c.height = height
		}
		y += height + gap
		b.width = max(b.width, x-gap+padding)
	}
	b.height = y - gap + padding
	b.width = max(b.width, min(width, textWidth(b.title)+textWidth(b.detail)+3*padding))
	b.alignNodes()
}

// alignNodes lets the NUMA nodes of every row end at the same edge.
func (b *box) alignNodes() {
	for i, c := range b.boxes {
		last := i == len(b.boxes)-1 || b.boxes[i+1].y != c.y
		if c.class == "numa" && last {
			c.width = b.width - padding - c.x
		}
	}
}

// evenRows breaks boxes into as few rows as the width allows, of which the widest is as narrow as possible.
func evenRows(boxes []*box, width int) [][]*box {
	best := fillRows(boxes, width)
	for i := range boxes {
		run := -gap
		for _, c := range boxes[i:] {
			run += c.width + gap
			if run >= width {
				break
			}
			if tried := fillRows(boxes, run); len(tried) <= len(best) && widestRow(tried) < widestRow(best) {
				best = tried
			}
		}
	}
	return best
}

// fillRows fills row after row.
func fillRows(boxes []*box, width int) (rows [][]*box) {
	x := 0
	for i, c := range boxes {
		if i == 0 || x+c.width > width {
			rows, x = append(rows, nil), 0
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], c)
		x += c.width + gap
	}
	return rows
}

func widestRow(rows [][]*box) (width int) {
	for _, row := range rows {
		sum := -gap
		for _, c := range row {
			sum += c.width + gap
		}
		width = max(width, sum)
	}
	return width
}

func (b *box) headHeight() int {
	if b.title == "" {
		return 0
	}
	return boxHead
}

func (b *box) onlyCards() bool {
	return !slices.ContainsFunc(b.boxes, func(c *box) bool { return c.card == nil })
}

// textWidth returns the approximate width of a text.
func textWidth(text string) int { return 13 * len([]rune(text)) / 2 }

// box is a node of the PCI tree or a card, with its position in the picture.
type box struct {
	class         string // of the style sheet: numa, complex, switch, card
	title, detail string
	path          string // bridges of the box, from the root complex down
	names         bool   // whether detail is the name of the switch, as in [topology.Tree.Switch]
	first         topology.Address
	boxes         []*box
	card          *Card
	x, y          int // within the parent box
	width, height int
}

// buildTree builds the boxes: NUMA nodes, their root complexes, the bridges shared by several cards, the
// cards.
func (n *Node) buildTree() *box {
	root := &box{}
	for i := range n.Cards {
		c := &n.Cards[i]
		at := root
		if _, ok := n.Tree.Device(c.Address); ok {
			name, top, title := n.Tree.Switch(c.Address), n.Tree.Top(c.Address), "Host bridge"
			if topology.LevelBelow(top) == topology.C2C {
				title = "NVLink-C2C"
			}
			at = at.childBox("numa", numaTitle(n.Tree.NUMA(c.Address)), "").childBox("complex", title, top)
			for _, bridge := range n.Tree.SharedBridges(c.Address) {
				at = at.childBox("switch", "Upper switch", bridge.String())
				at.names = at.detail == name
			}
		} else {
			at = at.childBox("numa", "Not in the PCI tree", "")
		}
		at.boxes = append(at.boxes, &box{class: "card", first: c.Address, card: c})
	}
	root.settleBoxes()
	root.numberSwitches(0)
	return root
}

func numaTitle(n topology.NUMANode) string {
	if number, known := n.Number(); known {
		return fmt.Sprintf("NUMA node %d", number)
	}
	return "NUMA node unknown"
}

// childBox finds or makes the box of a place.
func (b *box) childBox(class, title, detail string) *box {
	for _, c := range b.boxes {
		if c.class == class && c.title == title && c.detail == detail {
			return c
		}
	}
	c := &box{class: class, title: title, detail: detail, path: detail}
	b.boxes = append(b.boxes, c)
	return c
}

// settleBoxes sorts boxes by address, with GPUs before NICs on one switch, and merges a root complex or
// switch whose only inner box is a switch with that switch.
func (b *box) settleBoxes() {
	for i, c := range b.boxes {
		c.settleBoxes()
		if i == 0 || c.first.Compare(b.first) < 0 {
			b.first = c.first
		}
	}
	slices.SortFunc(b.boxes, func(p, q *box) int {
		return cmp.Or(cmp.Compare(p.sortRank(), q.sortRank()), cmp.Compare(p.sortNode(), q.sortNode()),
			p.first.Compare(q.first))
	})
	if (b.class == "complex" || b.class == "switch") && len(b.boxes) == 1 && b.boxes[0].class == "switch" {
		only := *b.boxes[0]
		only.path = b.path + " › " + only.path
		if b.names {
			only.detail, only.names = b.detail, true
		}
		*b = only
	}
}

// numberSwitches names the switches with cards in drawing order, starting with next, and returns the next
// free number.
func (b *box) numberSwitches(next int) int {
	if b.class == "switch" && slices.ContainsFunc(b.boxes, func(c *box) bool { return c.card != nil }) {
		b.title = fmt.Sprintf("Switch %d", next)
		next++
	}
	for _, c := range b.boxes {
		next = c.numberSwitches(next)
	}
	return next
}

// sortRank puts GPUs first, then NICs, then further bridges.
func (b *box) sortRank() int {
	if b.card == nil {
		return len(model.Kinds)
	}
	return int(b.card.Kind)
}

// sortNode returns the number of a NUMA node's box.
func (b *box) sortNode() string {
	if b.class == "numa" {
		return b.title
	}
	return ""
}

// groupCards returns the cards in the box in drawing order, grouped by the innermost box.
func (b *box) groupCards() (groups [][]*Card) {
	var own []*Card
	for _, c := range b.boxes {
		if c.card != nil {
			own = append(own, c.card)
		}
	}
	if len(own) > 0 {
		groups = append(groups, own)
	}
	for _, c := range b.boxes {
		groups = append(groups, c.groupCards()...)
	}
	return groups
}
