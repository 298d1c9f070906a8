// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"fmt"
	"html"
	"slices"
	"strings"
)

// Heights, in pixels.
const (
	textLine  = 20
	titleHead = 40
)

// look is an entry of the legend: a cell and what it means.
type look struct {
	class, text string
	owner       string // "" for a look without an owner
	first       bool   // of a line
	x, y        int
}

func (l look) width() int { return cellWidth + 6 + textWidth(l.text) }

// legend lists all looks that the picture can have, and the owners; with a nil palette, only the looks in
// use. A picture without known states has no looks.
func (n *Node) legend(owners []string, palette Palette) []look {
	known := slices.ContainsFunc(n.Cards, func(c Card) bool {
		return slices.ContainsFunc(c.Devices, func(d Device) bool { return d.State != Unknown })
	})
	if !known {
		return []look{{class: "unknown", text: "a VF or a partition, of which no state is known"}}
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
			class: fmt.Sprintf("allocated o%d", palette[owner].colour), text: owner, owner: owner, first: i == 0,
		})
	}
	return looks
}

// has reports whether a device without an owner has the look.
func (n *Node) has(class string) bool {
	return slices.ContainsFunc(n.Cards, func(c Card) bool {
		return slices.ContainsFunc(c.Devices, func(d Device) bool {
			return d.Owner == "" && slices.Contains(strings.Split(string(d.State), ", "), class)
		})
	})
}

// flow sets the looks in lines and returns the height of all lines.
func flow(looks []look, width int) ([]look, int) {
	x, y := padding, textLine
	for i := range looks {
		l := &looks[i]
		l.text = fit(l.text, width-2*padding-cellWidth-6)
		if l.first || x > padding && x+l.width() > width-padding {
			x, y = padding, y+textLine
		}
		l.x, l.y = x, y
		x += l.width() + 2*padding
	}
	return looks, y + padding
}

// legend draws the looks below the boxes. The Tab key reaches owners and cards.
func (c *canvas) legend(looks []look, top int) {
	for _, l := range looks {
		if l.owner != "" {
			owner := html.EscapeString(l.owner)
			fmt.Fprintf(c, `<g tabindex="0" role="button" aria-label="%s" data-key="owner %[1]s" data-owner="%[1]s">`+
				"<title>%[1]s</title>\n", owner)
		}
		c.cell(l.class, l.x, top+l.y-12, "")
		if l.owner != "" {
			c.initials(l.x, top+l.y-12, l.owner)
		}
		c.text("address", l.x+cellWidth+6, top+l.y, l.text)
		if l.owner != "" {
			c.WriteString("</g>\n")
		}
	}
}

// lines joins the parts of the summary into lines of at most width.
func lines(parts []string, width int) (lines []string) {
	const between = " · "
	for _, part := range parts {
		last := len(lines) - 1
		if last >= 0 && textWidth(lines[last]+between+part) <= width {
			lines[last] += between + part
		} else {
			lines = append(lines, fit(part, width))
		}
	}
	return lines
}
