package picture

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// Sizes, in pixels.
const (
	pageWidth  = 1240 // of the widest row, so that nothing scrolls sideways on a screen of 1280
	cardWidth  = 131  // so that four switches with a GPU and a NIC stand in a row
	cardHead   = 58
	cellSize   = 14
	cellGap    = 3
	cellsInRow = (cardWidth - 2*padding + cellGap) / (cellSize + cellGap)
	padding    = 10
	gap        = 10
	boxHead    = 26
)

// box is a place of the tree, or a card, with where it is drawn.
type box struct {
	class         string // of the style sheet: numa, complex, switch, card
	label         string
	first         topology.Address
	boxes         []*box
	card          *Card
	x, y          int // within the box around it
	width, height int
}

// tree builds the boxes: NUMA nodes, their root complexes, the bridges that several cards share, the cards.
func (n *Node) tree() *box {
	root := &box{}
	for i := range n.Cards {
		c := &n.Cards[i]
		at := root
		if d, ok := n.Tree.Device(c.Address); ok {
			at = at.child("numa", numaLabel(d.NUMA)).child("complex", d.RootComplex())
			for _, bridge := range n.Tree.SharedBridges(c.Address) {
				at = at.child("switch", bridge.String())
			}
		} else {
			at = at.child("numa", "not in the PCI tree")
		}
		at.boxes = append(at.boxes, &box{class: "card", first: c.Address, card: c})
	}
	root.settle()
	return root
}

func numaLabel(n topology.NUMANode) string {
	if number, known := n.Number(); known {
		return fmt.Sprintf("NUMA node %d", number)
	}
	return "NUMA node unknown"
}

// child finds or makes the box of a place.
func (b *box) child(class, label string) *box {
	for _, c := range b.boxes {
		if c.class == class && c.label == label {
			return c
		}
	}
	c := &box{class: class, label: label}
	b.boxes = append(b.boxes, c)
	return c
}

// settle brings boxes into the order of addresses, GPUs before NICs on one switch, and draws what has one box
// inside as that box.
func (b *box) settle() {
	for i, c := range b.boxes {
		c.settle()
		if i == 0 || c.first.Compare(b.first) < 0 {
			b.first = c.first
		}
	}
	slices.SortFunc(b.boxes, func(p, q *box) int {
		return cmp.Or(cmp.Compare(p.rank(), q.rank()), cmp.Compare(p.numa(), q.numa()), p.first.Compare(q.first))
	})
	if (b.class == "complex" || b.class == "switch") && len(b.boxes) == 1 && b.boxes[0].class == "switch" {
		only := *b.boxes[0]
		only.label = b.label + " › " + only.label
		*b = only
	}
}

// rank puts GPUs first, then NICs, then further bridges.
func (b *box) rank() int {
	if b.card == nil {
		return int(NIC) + 1
	}
	return int(b.card.Kind)
}

// numa is the label of a NUMA node: these go by number.
func (b *box) numa() string {
	if b.class == "numa" {
		return b.label
	}
	return ""
}

// place decides where everything goes, inside out.
func (b *box) place(width int) {
	if b.card != nil {
		b.width, b.height = cardWidth, cardHead
		if n := len(b.card.Devices); n > 0 && !b.card.whole() {
			rows := (n + cellsInRow - 1) / cellsInRow
			b.height += rows*(cellSize+cellGap) + padding - cellGap
		}
		return
	}
	inner := width - 2*padding
	if b.onlyCards() {
		inner = 2*cardWidth + gap // a GPU beside its NIC
	}
	x, y, row := padding, b.head(), 0
	for _, c := range b.boxes {
		c.place(inner)
		if x > padding && x+c.width > padding+inner {
			x, y, row = padding, y+row+gap, 0
		}
		c.x, c.y = x, y
		x += c.width + gap
		row = max(row, c.height)
		b.width = max(b.width, c.x+c.width+padding)
	}
	b.height = y + row + padding
	b.width = max(b.width, min(width, labelWidth(b.label)+2*padding))
}

func (b *box) head() int {
	if b.label == "" {
		return 0
	}
	return boxHead
}

func (b *box) onlyCards() bool {
	return !slices.ContainsFunc(b.boxes, func(c *box) bool { return c.card == nil })
}

// labelWidth is about how wide a label is drawn.
func labelWidth(label string) int { return 13 * len([]rune(label)) / 2 }
