// SPDX-License-Identifier: Apache-2.0

package picture

import "slices"

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

// place sets the position of each box, from the inside out.
func (b *box) place(width int) {
	if b.card != nil {
		b.width, b.height = cardWidth, cardHead
		if n := len(b.card.Devices); n > 0 && !b.card.whole() {
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
		c.place(inner)
	}
	y := b.head()
	for _, row := range even(b.boxes, inner) {
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
	b.align()
}

// align lets the NUMA nodes of every row end at the same edge.
func (b *box) align() {
	for i, c := range b.boxes {
		last := i == len(b.boxes)-1 || b.boxes[i+1].y != c.y
		if c.class == "numa" && last {
			c.width = b.width - padding - c.x
		}
	}
}

// even breaks boxes into as few rows as the width allows, of which the widest is as narrow as possible.
func even(boxes []*box, width int) [][]*box {
	best := rows(boxes, width)
	for i := range boxes {
		run := -gap
		for _, c := range boxes[i:] {
			run += c.width + gap
			if run >= width {
				break
			}
			if tried := rows(boxes, run); len(tried) <= len(best) && widest(tried) < widest(best) {
				best = tried
			}
		}
	}
	return best
}

// rows fills row after row.
func rows(boxes []*box, width int) (rows [][]*box) {
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

func widest(rows [][]*box) (width int) {
	for _, row := range rows {
		sum := -gap
		for _, c := range row {
			sum += c.width + gap
		}
		width = max(width, sum)
	}
	return width
}

func (b *box) head() int {
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
