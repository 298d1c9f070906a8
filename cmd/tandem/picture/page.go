// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
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
	"default-src 'none'", "script-src " + source(pageScript),
	"style-src " + source(pageStyle) + " " + source(style), "img-src data:",
	"connect-src 'self'", "base-uri 'none'", "form-action 'none'",
}, "; ")

// source names an inline script or style by its hash (https://www.w3.org/TR/CSP3/#source-list-syntax).
func source(inline string) string {
	sum := sha256.Sum256([]byte(inline))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// Page is a self-contained HTML page: the picture, and every device as a table.
type Page struct {
	Title   string
	Node    *Node         // nil for none
	Problem string        // reason for a missing or outdated node
	Renew   time.Duration // refresh interval of a visible page; 0 for never
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
		Notes    []string
		Rejected []string
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
			{"wide", template.HTML(p.Node.draw(Wide, ""))},
			{"middle", template.HTML(p.Node.draw(middle, ""))},
			{"narrow", template.HTML(p.Node.draw(Narrow, ""))},
		}
		view.Table, view.Notes = newTable(p.Node.tree().rows()), p.Node.Notes
		view.Rejected = p.Node.Rejected
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

// rows lists the devices in drawing order.
func (b *box) rows() (rows [][]string) {
	for _, inner := range b.boxes {
		card := inner.card
		if card == nil {
			rows = append(rows, inner.rows()...)
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
