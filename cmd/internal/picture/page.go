package picture

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"strings"
	"time"
)

//go:embed page.html
var pageText string

//go:embed page.css
var pageStyle string

//go:embed page.js
var pageScript string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// Policy is the content security policy of every page: it may use what is in it, and ask for itself again.
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
	Node    *Node         // nil where there is none to show
	Problem string        // why there is none, or why it is not up to date
	Renew   time.Duration // a page that is looked at asks for itself again after so long; 0 for never
}

// row is a device in the table of a page.
type row struct {
	Card   *Card
	Device *Device
}

// HTML writes the page.
func (p Page) HTML() ([]byte, error) {
	view := struct {
		Page
		Policy  string
		Style   template.CSS
		Script  template.JS
		Picture template.HTML
		Rows    []row
		Notes   []string
		Every   int64 // milliseconds
	}{
		Page:   p,
		Policy: Policy,
		Style:  template.CSS(pageStyle),
		Script: template.JS(pageScript),
		Every:  p.Renew.Milliseconds(),
	}
	if p.Node != nil {
		view.Picture, view.Rows, view.Notes = template.HTML(p.Node.SVG()), p.Node.tree().rows(), p.Node.Notes
	}
	var out bytes.Buffer
	err := pageTemplate.Execute(&out, view)
	return out.Bytes(), err
}

// rows lists the devices in the order in which they are drawn.
func (b *box) rows() []row {
	var rows []row
	for _, inner := range b.boxes {
		if inner.card == nil {
			rows = append(rows, inner.rows()...)
			continue
		}
		for i := range inner.card.Devices {
			rows = append(rows, row{inner.card, &inner.card.Devices[i]})
		}
	}
	return rows
}
