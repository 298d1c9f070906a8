package picture

import (
	"bytes"
	_ "embed"
	"fmt"
	"html"
	"slices"
)

//go:embed picture.css
var style string

// colours is how many owners can be told apart by colour; more of them share.
const colours = 8

// canvas is a picture being drawn.
type canvas struct {
	bytes.Buffer
	owners []string
}

// SVG draws the node. The picture needs nothing beside it; it is light or dark as the viewer is.
func (n *Node) SVG() []byte {
	root := n.tree()
	root.place(pageWidth)
	c := &canvas{owners: n.owners()}
	const head = 40
	width, height := max(root.width, 2*padding+labelWidth(n.Title)*4/3), root.height+head+legendHeight
	fmt.Fprintf(c, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%d" role="img" aria-label="%s">`+"\n",
		width, height, html.EscapeString(n.Title))
	fmt.Fprintf(c, "<style>\n%s</style>\n", style)
	c.WriteString(`<defs><pattern id="hatch" width="5" height="5" patternTransform="rotate(45)" patternUnits="userSpaceOnUse">` +
		`<line class="hatch" x1="0" y1="0" x2="0" y2="5"/></pattern></defs>` + "\n")
	fmt.Fprintf(c, `<rect class="page" width="%d" height="%d"/>`+"\n", width, height)
	c.text("title", padding, 26, n.Title)
	c.box(root, 0, head)
	c.legend(height-legendHeight+16, n.known())
	c.WriteString("</svg>\n")
	return c.Bytes()
}

// known reports whether the state of any device is.
func (n *Node) known() bool {
	return slices.ContainsFunc(n.Cards, func(c Card) bool {
		return slices.ContainsFunc(c.Devices, func(d Device) bool { return d.State != Unknown })
	})
}

// box draws a place and what is in it; x and y are where the box around it begins.
func (c *canvas) box(b *box, x, y int) {
	x, y = x+b.x, y+b.y
	if b.class != "" {
		fmt.Fprintf(c, `<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="6"/>`+"\n", b.class, x, y, b.width, b.height)
		c.text("label", x+padding, y+17, b.label)
	}
	for _, inner := range b.boxes {
		if inner.card != nil {
			c.card(inner, b.strands(inner.card.Kind), x, y)
		} else {
			c.box(inner, x, y)
		}
	}
}

// card draws a GPU or NIC: itself in its device's colour where it is one device, else with a cell for each.
func (c *canvas) card(b *box, alone bool, x, y int) {
	x, y = x+b.x, y+b.y
	card := b.card
	class, about := "card", fmt.Sprintf("%s %s %s", card.Name, card.Address, card.Detail)
	whole := card.Kind == GPU && len(card.Devices) == 1
	if whole {
		d := &card.Devices[0]
		class += " " + c.class(d, alone)
		about = fmt.Sprintf("%s %s: %s", card.Name, card.Detail, d.describe(alone && d.State == Free))
	}
	fmt.Fprintf(c, `<g tabindex="0" aria-label="%s"><title>%[1]s</title>`+"\n", html.EscapeString(about))
	fmt.Fprintf(c, `<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="4"/>`+"\n", class, x, y, b.width, b.height)
	c.text("name", x+padding, y+17, card.Name)
	c.text("address", x+padding, y+33, card.Address.String())
	c.text("detail", x+padding, y+49, fit(card.Detail, cardWidth-2*padding))
	c.WriteString("</g>\n")
	if whole {
		return
	}
	for i := range card.Devices {
		d := &card.Devices[i]
		fmt.Fprintf(c, `<rect class="cell %s" x="%d" y="%d" width="%d" height="%d" rx="2"><title>%s</title></rect>`+"\n",
			c.class(d, alone), x+padding+i%cellsInRow*(cellSize+cellGap), y+cardHead+i/cellsInRow*(cellSize+cellGap), cellSize, cellSize,
			html.EscapeString(d.describe(alone && d.State == Free)))
	}
}

// class is how a device looks.
func (c *canvas) class(d *Device, alone bool) string {
	switch {
	case d.State == Free && alone:
		return "stranded"
	case d.State == Allocated && d.Owner != "":
		i, _ := slices.BinarySearch(c.owners, d.Owner)
		return fmt.Sprintf("allocated o%d", i%colours)
	case d.State == Unknown:
		return "unknown"
	default:
		return stateWords[d.State]
	}
}

const legendHeight = 30

// legend explains the looks, below the boxes.
func (c *canvas) legend(y int, states bool) {
	if !states {
		c.text("address", padding, y, "box in box: NUMA node, root complex, switches; a small square is a VF or a partition")
		return
	}
	x := padding
	for _, look := range []struct{ class, text string }{
		{"free", "free"}, {"stranded", "free, but no free partner on its switch"}, {"planned", "planned for the container in admission"},
		{"allocated o0", "allocated, a colour for each container"}, {"allocated", "allocated, owner not known yet"}, {"unhealthy", "unhealthy"},
	} {
		fmt.Fprintf(c, `<rect class="cell %s" x="%d" y="%d" width="%d" height="%[4]d" rx="2"/>`+"\n", look.class, x, y-11, cellSize)
		c.text("address", x+cellSize+6, y, look.text)
		x += cellSize + 24 + labelWidth(look.text)
	}
}

func (c *canvas) text(class string, x, y int, s string) {
	if s != "" {
		fmt.Fprintf(c, `<text class="%s" x="%d" y="%d">%s</text>`+"\n", class, x, y, html.EscapeString(s))
	}
}

// fit cuts a text that is wider than there is room.
func fit(s string, width int) string {
	if r := []rune(s); labelWidth(s) > width {
		return string(r[:max(width*2/13-1, 0)]) + "…"
	}
	return s
}
