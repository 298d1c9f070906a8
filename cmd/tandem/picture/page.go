// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
)

//go:embed page.html
var pageText string

//go:embed page.css
var pageStyle string

//go:embed page.js
var pageScript string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// Policy is the content security policy of every page: own content only, and requests to its own server.
var Policy = strings.Join([]string{
	"default-src 'none'", "script-src " + hashSource(pageScript),
	"style-src " + hashSource(pageStyle) + " " + hashSource(style), "img-src data:",
	"connect-src 'self'", "base-uri 'none'", "form-action 'none'",
}, "; ")

// hashSource names an inline script or style by its hash (https://www.w3.org/TR/CSP3/#source-list-syntax).
func hashSource(inline string) string {
	sum := sha256.Sum256([]byte(inline))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// Page is a self-contained HTML page: the picture, and every device as a table.
type Page struct {
	Title   string
	Node    *Node         // nil for none
	Problem string        // reason for a missing or outdated node
	Renew   time.Duration // refresh interval of a visible page
}

// layout is the picture for one width of screen; the style sheet selects the layout.
type layout struct {
	Class   string
	Picture template.HTML
}

// HTML writes the page.
func (p Page) HTML() ([]byte, error) {
	view := struct {
		Page
		Policy   string
		Style    template.CSS
		Script   template.JS
		Preamble template.HTML
		Layouts  []layout
		Table    table
		Every    int64 // milliseconds
	}{
		Page:     p,
		Policy:   Policy,
		Style:    template.CSS(pageStyle),
		Script:   template.JS(pageScript),
		Preamble: template.HTML(preamble),
		Every:    p.Renew.Milliseconds(),
	}
	if p.Node != nil {
		view.Layouts = []layout{
			{"wide", template.HTML(p.Node.drawSVG(Wide, ""))},
			{"middle", template.HTML(p.Node.drawSVG(middle, ""))},
			{"narrow", template.HTML(p.Node.drawSVG(Narrow, ""))},
		}
		view.Table = newTable(p.Node.buildTree().listDevices())
	}
	var out bytes.Buffer
	err := pageTemplate.Execute(&out, view)
	return []byte(cli.PrintableLines(out.String())), err
}

// table is a table without empty columns.
type table struct {
	Head []string
	Rows [][]string
}

func newTable(rows [][]string) table {
	all := table{
		[]string{"Card", "Address", "Model", "Device", "Names", "Resource", "State", "Owner"}, rows,
	}
	for i := len(all.Head) - 1; i >= 0; i-- {
		if slices.ContainsFunc(all.Rows, func(row []string) bool { return row[i] != "" }) {
			continue
		}
		all.Head = slices.Delete(all.Head, i, i+1)
		for j := range all.Rows {
			all.Rows[j] = slices.Delete(all.Rows[j], i, i+1)
		}
	}
	return all
}

// listDevices lists the devices in drawing order.
func (b *box) listDevices() (rows [][]string) {
	for _, inner := range b.boxes {
		card := inner.card
		if card == nil {
			rows = append(rows, inner.listDevices()...)
			continue
		}
		for _, d := range card.Devices {
			rows = append(rows, []string{
				card.Name, card.Address.String(), card.Detail, d.ID, d.Detail, d.Resource, string(d.State), d.Owner,
			})
		}
	}
	return rows
}

//go:embed picture.css
var style string

// preamble is the shared part of all pictures of a page.
var preamble = "<style>" + style + "</style>\n" +
	`<defs><pattern id="hatch" width="5" height="5" patternTransform="rotate(45)" patternUnits="userSpaceOnUse">` +
	`<line class="hatch" x1="0" y1="0" x2="0" y2="5"/></pattern></defs>` + "\n"

// canvas is a picture being drawn.
type canvas struct {
	bytes.Buffer
	palette Palette
}

// SVG draws the node for a wide screen as a self-contained picture, light or dark like the viewer.
func (n *Node) SVG() []byte {
	return []byte(cli.PrintableLines(string(n.drawSVG(cmp.Or(n.Width, Wide), preamble))))
}

// drawSVG draws the node at most limit wide, if the switches fit.
func (n *Node) drawSVG(limit int, shared string) []byte {
	root := n.buildTree()
	root.placeBoxes(limit)
	owners, palette := n.markOwners(root)
	c := &canvas{palette: palette}
	width := max(root.width, min(limit, middle))
	summary := joinLines(n.Summary, width-2*padding)
	head := titleHead + len(summary)*textLine
	legend, below := flowLooks(n.listLooks(owners, palette), width)
	height := head + root.height + below
	fmt.Fprintf(c,
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%d" role="group" aria-label="%s">`+
			"\n%s",
		width, height, html.EscapeString(n.Title), shared)
	fmt.Fprintf(c, `<rect class="page" width="%d" height="%d"/>`+"\n", width, height)
	title := fitText(n.Title, (width-2*padding)*3/4) // titles have larger letters
	c.drawText("title", padding, titleHead-14, title)
	for i, line := range summary {
		c.drawText("summary", padding, titleHead-14+(i+1)*textLine, line)
	}
	c.drawBox(root, 0, head)
	c.drawLegend(legend, head+root.height)
	c.WriteString("</svg>\n")
	return c.Bytes()
}

// drawBox draws a place and its content; x and y are the corner of the parent box.
func (c *canvas) drawBox(b *box, x, y int) {
	x, y = x+b.x, y+b.y
	if b.class != "" {
		fmt.Fprintf(c, `<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="6"><title>%s</title></rect>`+"\n",
			b.class, x, y, b.width, b.height, html.EscapeString(b.path))
		c.drawText("place", x+padding, y+17, b.title)
		c.drawEnding("label", x+b.width-padding, y+17, b.detail)
	}
	for _, inner := range b.boxes {
		if inner.card != nil {
			c.drawCard(inner, b, x, y)
		} else {
			c.drawBox(inner, x, y)
		}
	}
}

// drawCard draws a GPU or NIC: in its device's colour if the card is one device, else with a cell per device.
// The Tab key reaches every card; data-key identifies the card for the page's script, which can move on to
// the cells.
func (c *canvas) drawCard(b, at *box, x, y int) {
	x, y = x+b.x, y+b.y
	card := b.card
	class, owner := "card", ""
	about := fmt.Sprintf("%s %s %s, %s %s", card.Name, card.Address, card.Detail, at.title, at.path)
	whole := card.isWhole()
	if whole {
		class += " " + c.styleClass(&card.Devices[0])
		owner = card.Devices[0].Owner
		about += ": " + card.Devices[0].describeState()
	}
	fmt.Fprintf(c, `<g tabindex="0" role="group" aria-label="%s" data-key="%s"%s><title>%[1]s</title>`+"\n",
		html.EscapeString(about), html.EscapeString(card.Name), ownerAttribute(owner))
	fmt.Fprintf(c, `<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="4"/>`+"\n", class, x, y, b.width,
		b.height)
	c.drawText("name", x+padding, y+17, card.Name)
	c.drawText("address", x+padding, y+33, card.Address.String())
	c.drawText("detail", x+padding, y+49, fitText(card.Detail, cardWidth-2*padding))
	if whole {
		if owner != "" {
			c.drawEnding("name", x+b.width-padding, y+17, c.palette[owner].initials)
		}
	} else {
		c.drawCells(card, x, y)
	}
	c.WriteString("</g>\n")
}

// drawCells draws the devices of a card.
func (c *canvas) drawCells(card *Card, x, y int) {
	for i := range card.Devices {
		d := &card.Devices[i]
		cellX := x + padding + i%cellsInRow*(cellWidth+cellGap)
		cellY := y + cardHead + i/cellsInRow*(cellHeight+cellGap)
		attributes := fmt.Sprintf(` tabindex="-1" role="img" aria-label="%s" data-key="%s %s"%s`,
			html.EscapeString(d.describeState()), html.EscapeString(card.Name), html.EscapeString(d.ID),
			ownerAttribute(d.Owner))
		c.drawCell(c.styleClass(d), cellX, cellY, attributes, html.EscapeString(d.describeState()))
		if d.Owner != "" {
			c.drawInitials(cellX, cellY, d.Owner)
		}
	}
}

func (c *canvas) drawCell(class string, x, y int, attributes string, title ...string) {
	fmt.Fprintf(c, `<rect class="cell %s" x="%d" y="%d" width="%d" height="%d" rx="2"%s>`,
		class, x, y, cellWidth, cellHeight, attributes)
	for _, t := range title {
		fmt.Fprintf(c, "<title>%s</title>", t)
	}
	c.WriteString("</rect>\n")
}

// drawInitials writes the owner's initials into a cell.
func (c *canvas) drawInitials(x, y int, owner string) {
	fmt.Fprintf(c, `<text class="initials" x="%d" y="%d">%s</text>`+"\n", x+cellWidth/2, y+cellHeight-4,
		html.EscapeString(c.palette[owner].initials))
}

// ownerAttribute returns the attribute by which the page's script finds all devices of an owner.
func ownerAttribute(owner string) string {
	if owner == "" {
		return ""
	}
	return fmt.Sprintf(` data-owner="%s"`, html.EscapeString(owner))
}

// styleClass returns the style classes of a device.
func (c *canvas) styleClass(d *Device) string {
	class := string(d.State)
	switch d.State {
	case Unknown:
		class = "unknown"
	case AllocatedUnhealthy:
		class = "allocated unhealthy"
	}
	if d.Owner != "" {
		class += fmt.Sprintf(" o%d", c.palette[d.Owner].colour)
	}
	return class
}

func (c *canvas) drawText(class string, x, y int, s string) {
	if s != "" {
		fmt.Fprintf(c, `<text class="%s" x="%d" y="%d">%s</text>`+"\n", class, x, y, html.EscapeString(s))
	}
}

// drawEnding writes a text that ends at x.
func (c *canvas) drawEnding(class string, x, y int, s string) { c.drawText(class+" end", x, y, s) }

// fitText cuts a text to the width.
func fitText(s string, width int) string {
	if r := []rune(s); textWidth(s) > width {
		return string(r[:max(width*2/13-1, 0)]) + "…"
	}
	return s
}
