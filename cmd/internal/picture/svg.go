package picture

import (
	"bytes"
	_ "embed"
	"fmt"
	"html"
	"slices"
	"strings"
)

//go:embed picture.css
var style string

// canvas is a picture being drawn.
type canvas struct {
	bytes.Buffer
	palette Palette
}

// SVG draws the node. The picture needs nothing beside it; it is light or dark as the viewer is.
func (n *Node) SVG() []byte {
	root := n.tree()
	root.place(pageWidth)
	owners, palette := n.owners()
	c := &canvas{palette: palette}
	const head = 40
	width := max(root.width, 2*padding+labelWidth(n.Title)*4/3)
	legend, below := flow(n.legend(owners, palette), max(width, pageWidth/2))
	for _, l := range legend {
		width = max(width, l.x+l.width()+padding)
	}
	height := head + root.height + below
	fmt.Fprintf(c,
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%d" role="group" aria-label="%s">`+
			"\n",
		width, height, html.EscapeString(n.Title))
	fmt.Fprintf(c, "<style>%s</style>\n", style)
	c.WriteString(
		`<defs><pattern id="hatch" width="5" height="5" patternTransform="rotate(45)" patternUnits="userSpaceOnUse">` +
			`<line class="hatch" x1="0" y1="0" x2="0" y2="5"/></pattern></defs>` + "\n")
	fmt.Fprintf(c, `<rect class="page" width="%d" height="%d"/>`+"\n", width, height)
	c.text("title", padding, 26, n.Title)
	c.box(root, 0, head)
	c.legend(legend, head+root.height)
	c.WriteString("</svg>\n")
	return c.Bytes()
}

// box draws a place and what is in it; x and y are where the box around it begins.
func (c *canvas) box(b *box, x, y int) {
	x, y = x+b.x, y+b.y
	if b.class != "" {
		fmt.Fprintf(c, `<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="6"/>`+"\n", b.class, x, y,
			b.width, b.height)
		c.text("label", x+padding, y+17, b.label)
	}
	for _, inner := range b.boxes {
		if inner.card != nil {
			c.card(inner, x, y)
		} else {
			c.box(inner, x, y)
		}
	}
}

// card draws a GPU or NIC: itself in its device's colour where it is one device, else with a cell for each.
// Tab reaches every card; data-key names what the page's script can show, and from where it can go on to the
// cells.
func (c *canvas) card(b *box, x, y int) {
	x, y = x+b.x, y+b.y
	card := b.card
	class, owner, about := "card", "", fmt.Sprintf("%s %s %s", card.Name, card.Address, card.Detail)
	whole := card.whole()
	if whole {
		class += " " + c.class(&card.Devices[0])
		owner = ownerAttribute(card.Devices[0].Owner)
		about += ": " + card.Devices[0].describe()
	}
	fmt.Fprintf(c, `<g tabindex="0" role="group" aria-label="%s" data-key="%s"%s><title>%[1]s</title>`+"\n",
		html.EscapeString(about), html.EscapeString(card.Name), owner)
	fmt.Fprintf(c, `<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="4"/>`+"\n", class, x, y, b.width,
		b.height)
	c.text("name", x+padding, y+17, card.Name)
	c.text("address", x+padding, y+33, card.Address.String())
	c.text("detail", x+padding, y+49, fit(card.Detail, cardWidth-2*padding))
	for i := range card.Devices {
		if whole {
			break
		}
		d := &card.Devices[i]
		about := html.EscapeString(d.describe())
		fmt.Fprintf(c, `<rect class="cell %s" x="%d" y="%d" width="%d" height="%d" rx="2" `+
			`tabindex="-1" role="img" aria-label="%s" data-key="%s %s"%s><title>%[6]s</title></rect>`+"\n",
			c.class(d), x+padding+i%cellsInRow*(cellSize+cellGap), y+cardHead+i/cellsInRow*(cellSize+cellGap),
			cellSize, cellSize,
			about, html.EscapeString(card.Name), html.EscapeString(d.ID), ownerAttribute(d.Owner))
	}
	c.WriteString("</g>\n")
}

// ownerAttribute is by what the page's script finds all devices of an owner.
func ownerAttribute(owner string) string {
	if owner == "" {
		return ""
	}
	return fmt.Sprintf(` data-owner="%s"`, html.EscapeString(owner))
}

// class is how a device looks.
func (c *canvas) class(d *Device) string {
	class := string(d.State)
	switch d.State {
	case Unknown:
		class = "unknown"
	case AllocatedUnhealthy:
		class = "allocated unhealthy"
	}
	if d.Owner != "" {
		class += fmt.Sprintf(" o%d", c.palette[d.Owner])
	}
	return class
}

// look is an entry of the legend: a cell and what it means.
type look struct {
	class, text string
	owner       string // "" for a look that is not an owner's
	first       bool   // of a line
	x, y        int
}

func (l look) width() int { return cellSize + 6 + labelWidth(l.text) }

// legend lists the looks that the picture may have, and its owners; of a picture that is drawn once those
// that it has. Where no state is known nothing has a look.
func (n *Node) legend(owners []string, palette Palette) []look {
	known := slices.ContainsFunc(n.Cards, func(c Card) bool {
		return slices.ContainsFunc(c.Devices, func(d Device) bool { return d.State != Unknown })
	})
	if !known {
		return []look{
			{class: "unknown", text: "a VF or a partition; box in box: NUMA node, root complex, switches"},
		}
	}
	looks := []look{
		{class: "free", text: "free"}, {class: "stranded", text: "free, but no free partner on its switch"},
		{class: "planned", text: "planned for the container in admission"}, {class: "unhealthy", text: "unhealthy"},
		{class: "allocated", text: "allocated, owner not known yet"},
	}
	if n.Palette == nil {
		looks = slices.DeleteFunc(looks, func(l look) bool { return !n.has(l.class) })
	}
	for i, owner := range owners {
		looks = append(looks, look{
			class: fmt.Sprintf("allocated o%d", palette[owner]), text: owner, owner: owner, first: i == 0,
		})
	}
	return looks
}

// has is whether a device without an owner looks so.
func (n *Node) has(class string) bool {
	return slices.ContainsFunc(n.Cards, func(c Card) bool {
		return slices.ContainsFunc(c.Devices, func(d Device) bool {
			return d.Owner == "" && slices.Contains(strings.Split(string(d.State), ", "), class)
		})
	})
}

const legendLine = 20

// flow sets the looks in lines, and returns how high all of them are.
func flow(looks []look, width int) ([]look, int) {
	x, y := padding, legendLine
	for i := range looks {
		l := &looks[i]
		if l.first || x > padding && x+l.width() > width-padding {
			x, y = padding, y+legendLine
		}
		l.x, l.y = x, y
		x += l.width() + 2*padding
	}
	return looks, y + padding
}

// legend draws the looks below the boxes.
func (c *canvas) legend(looks []look, top int) {
	for _, l := range looks {
		fmt.Fprintf(c, `<rect class="cell %s" x="%d" y="%d" width="%d" height="%[4]d" rx="2"%s/>`+"\n", l.class,
			l.x, top+l.y-11, cellSize, ownerAttribute(l.owner))
		c.text("address", l.x+cellSize+6, top+l.y, l.text)
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
