package picture

import (
	"bytes"
	_ "embed"
	"html/template"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// row is a device in the table of a page.
type row struct {
	Card, Address, Detail, Device, State, Owner string
	Stranded                                    bool
}

// Page is a self-contained HTML page: the picture, and every device as a table. A live page asks for itself again every
// two seconds while it is looked at.
func (n *Node) Page(live bool) ([]byte, error) {
	root := n.tree()
	page := struct {
		Title   string
		Picture template.HTML
		Rows    []row
		Live    bool
	}{n.Title, template.HTML(n.SVG()), root.rows(), live}
	var out bytes.Buffer
	err := pageTemplate.Execute(&out, page)
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
		c := inner.card
		for _, d := range c.Devices {
			rows = append(rows, row{
				Card: c.Name, Address: c.Address.String(), Detail: c.Detail, Device: d.ID, State: stateWords[d.State], Owner: d.Owner,
				Stranded: d.State == Free && b.strands(c.Kind),
			})
		}
	}
	return rows
}
