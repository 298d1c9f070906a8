// SPDX-License-Identifier: Apache-2.0

// Package picture draws a node for people: the PCI tree as nested boxes, the GPUs and NICs on their switches,
// every GPU partition and VF with its state and owner. [Node.SVG] returns a self-contained picture, [Page] a
// page around it.
package picture

import (
	"cmp"
	"fmt"
	"html"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
)

// Node is the content of a picture.
type Node struct {
	Title   string
	Summary []string // the most important facts, a few words each
	Tree    *topology.Tree
	Cards   []Card   // in any order
	Notes   []string // further facts, a sentence each
	// Rejected are pods that hold nothing, as owners without a container ("NAMESPACE/POD/"); only a page has
	// them.
	Rejected []string
	Width    int // of the picture of SVG in pixels, if the switches fit; 0 is Wide
	// Palette is for a picture that is drawn repeatedly. With nil, the legend has only the looks in use.
	Palette Palette
}

// Card is a GPU or a NIC.
type Card struct {
	Kind    model.Kind // of its devices
	Name    string     // "GPU0"; no two cards have the same
	Detail  string     // model, RDMA device
	Address topology.Address
	Devices []Device // what can be given to containers: the GPU or its partitions, the VFs
}

// AddCard adds a card with the number of its kind as name.
func (n *Node) AddCard(kind model.Kind, detail string, address topology.Address) *Card {
	number := 0
	for _, c := range n.Cards {
		if c.Kind == kind {
			number++
		}
	}
	name := [...]string{model.GPU: "GPU", model.VF: "NIC"}[kind]
	n.Cards = append(n.Cards, Card{Kind: kind, Name: fmt.Sprint(name, number), Detail: detail, Address: address})
	return &n.Cards[len(n.Cards)-1]
}

// CardOf returns the card of a function, or adds one: for a NIC without RDMA, or what the machine does not
// have any more.
func (n *Node) CardOf(kind model.Kind, address topology.Address) *Card {
	if d, ok := n.Tree.Device(address); ok {
		address = d.Function()
	}
	for i := range n.Cards {
		if n.Cards[i].Address == address {
			return &n.Cards[i]
		}
	}
	return n.AddCard(kind, ListNames(n.Tree, address), address)
}

// AddNote adds a note.
func (n *Node) AddNote(format string, args ...any) {
	n.Notes = append(n.Notes, fmt.Sprintf(format, args...))
}

// isWhole reports whether the card itself is its only device, instead of being divided into devices.
func (c *Card) isWhole() bool {
	return len(c.Devices) == 1 && (c.Kind == model.GPU || c.Devices[0].Address == c.Address)
}

// Device is a device as the kubelet knows it.
type Device struct {
	ID       string
	Address  topology.Address // of the device's function, or of the function that contains it
	Detail   string           // names of a VF's RDMA device and netdev
	Resource string           // "amd.com/gpu"; "" for unknown
	State    State
	Owner    string // namespace/pod/container; "" for unknown
}

// State is the state of a device, in the words of "tandem status".
type State string

// The states of a device.
const (
	Unknown            State = ""
	Free               State = "free"
	Stranded           State = "stranded" // free, and no device of the other kind is free on its switch
	Planned            State = "planned"
	Allocated          State = "allocated"
	Unhealthy          State = "unhealthy"
	AllocatedUnhealthy State = "allocated, unhealthy"
)

// describeState returns all facts about a device in one line.
func (d *Device) describeState() string {
	state := string(d.State)
	if d.State == Stranded {
		state = "stranded: free, but no partner is free on its switch"
	}
	said := slices.DeleteFunc([]string{d.ID, d.Detail, d.Resource, state, d.Owner}, func(s string) bool {
		return s == ""
	})
	return strings.Join(said, ", ")
}

// ListNames returns the names of a function's RDMA devices and netdevs.
func ListNames(tree *topology.Tree, address topology.Address) string {
	d, ok := tree.Device(address)
	if !ok {
		return ""
	}
	return strings.Join(slices.Concat(d.RDMA, d.Netdevs), " ")
}

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

// listLooks lists all looks that the picture can have, and the owners; with a nil palette, only the looks in
// use. A picture without known states has no looks.
func (n *Node) listLooks(owners []string, palette Palette) []look {
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
		looks = slices.DeleteFunc(looks, func(l look) bool { return !n.hasLook(l.class) })
	}
	for i, owner := range owners {
		looks = append(looks, look{
			class: fmt.Sprintf("allocated o%d", palette[owner].colour), text: owner, owner: owner, first: i == 0,
		})
	}
	return looks
}

// hasLook reports whether a device without an owner has the look.
func (n *Node) hasLook(class string) bool {
	return slices.ContainsFunc(n.Cards, func(c Card) bool {
		return slices.ContainsFunc(c.Devices, func(d Device) bool {
			return d.Owner == "" && slices.Contains(strings.Split(string(d.State), ", "), class)
		})
	})
}

// flowLooks sets the looks in lines and returns the height of all lines.
func flowLooks(looks []look, width int) ([]look, int) {
	x, y := padding, textLine
	for i := range looks {
		l := &looks[i]
		l.text = fitText(l.text, width-2*padding-cellWidth-6)
		if l.first || x > padding && x+l.width() > width-padding {
			x, y = padding, y+textLine
		}
		l.x, l.y = x, y
		x += l.width() + 2*padding
	}
	return looks, y + padding
}

// drawLegend draws the looks below the boxes. The Tab key reaches owners and cards.
func (c *canvas) drawLegend(looks []look, top int) {
	for _, l := range looks {
		if l.owner != "" {
			owner := html.EscapeString(l.owner)
			fmt.Fprintf(c, `<g tabindex="0" role="button" aria-label="%s" data-key="owner %[1]s" data-owner="%[1]s">`+
				"<title>%[1]s</title>\n", owner)
		}
		c.drawCell(l.class, l.x, top+l.y-12, "")
		if l.owner != "" {
			c.drawInitials(l.x, top+l.y-12, l.owner)
		}
		c.drawText("address", l.x+cellWidth+6, top+l.y, l.text)
		if l.owner != "" {
			c.WriteString("</g>\n")
		}
	}
}

// joinLines joins the parts of the summary into lines of at most width.
func joinLines(parts []string, width int) (lines []string) {
	const between = " · "
	for _, part := range parts {
		last := len(lines) - 1
		if last >= 0 && textWidth(lines[last]+between+part) <= width {
			lines[last] += between + part
		} else {
			lines = append(lines, fitText(part, width))
		}
	}
	return lines
}

// colours is the number of colours of owners. More owners share colours and differ in their initials.
const colours = 12

// mark is how the devices of an owner are marked.
type mark struct {
	colour   int
	initials string // unique among the owners
}

// Palette keeps the mark of each owner from picture to picture.
type Palette map[string]mark

// markOwners returns the owners of devices, sorted, and a mark for each.
func (n *Node) markOwners(root *box) ([]string, Palette) {
	near := findNeighbours(root)
	owners := slices.Sorted(maps.Keys(near))
	palette := n.Palette
	if palette == nil {
		palette = Palette{}
	}
	palette.assignMarks(owners, near)
	return owners, palette
}

// findNeighbours returns, for each owner, the other owners on the same switch, or on the same host bridge for
// devices without a switch.
func findNeighbours(root *box) map[string]map[string]bool {
	near := map[string]map[string]bool{}
	for _, group := range root.groupCards() {
		var here []string
		for _, card := range group {
			for _, d := range card.Devices {
				if d.Owner != "" {
					here = append(here, d.Owner)
				}
			}
		}
		slices.Sort(here)
		here = slices.Compact(here)
		for _, a := range here {
			if near[a] == nil {
				near[a] = map[string]bool{}
			}
			for _, b := range here {
				near[a][b] = near[a][b] || a != b
			}
		}
	}
	return near
}

// assignMarks forgets absent owners. A new owner gets the colour that the fewest neighbours have, and of
// those the least used. If two neighbours share a colour, the later one changes.
func (p Palette) assignMarks(owners []string, near map[string]map[string]bool) {
	maps.DeleteFunc(p, func(owner string, _ mark) bool { return !slices.Contains(owners, owner) })
	for _, owner := range owners {
		mark, known := p[owner]
		if known && !p.hasClash(owner, mark.colour, near[owner]) {
			continue
		}
		delete(p, owner)
		if !known {
			mark.initials = p.newInitials(owner)
		}
		mark.colour = p.leastUsed(near[owner])
		p[owner] = mark
	}
}

// hasClash reports whether a neighbour that sorts before owner has the colour.
func (p Palette) hasClash(owner string, colour int, near map[string]bool) bool {
	for other, mark := range p {
		if near[other] && other < owner && mark.colour == colour {
			return true
		}
	}
	return false
}

func (p Palette) leastUsed(near map[string]bool) int {
	var beside, used [colours]int
	for other, mark := range p {
		used[mark.colour]++
		if near[other] {
			beside[mark.colour]++
		}
	}
	best := 0
	for c := range colours {
		if cmp.Or(cmp.Compare(beside[c], beside[best]), cmp.Compare(used[c], used[best])) < 0 {
			best = c
		}
	}
	return best
}

// newInitials returns two or three characters that no other owner has: the first of the pod's name and the
// first of the name's last part, else the first and a number.
func (p Palette) newInitials(owner string) string {
	taken := map[string]bool{}
	for _, mark := range p {
		taken[mark.initials] = true
	}
	name := owner
	if parts := strings.Split(owner, "/"); len(parts) > 1 {
		name = parts[len(parts)-2]
	}
	name, _, _ = strings.Cut(name, ",") // of a plan: "pair 1, PIX"
	parts := strings.FieldsFunc(name, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	if len(parts) == 0 {
		parts = []string{"?"}
	}
	first, last := []rune(parts[0]), []rune(parts[len(parts)-1])
	if len(parts) == 1 {
		last = last[1:]
	}
	lengths := []int{1, 2}
	if len(last) > 0 && unicode.IsDigit(last[0]) {
		lengths = []int{2, 1} // train-12 is t12, not t1
	}
	for _, length := range lengths {
		if i := string(first[:1]) + string(last[:min(length, len(last))]); !taken[i] {
			return i
		}
	}
	for number := 1; ; number++ {
		if i := fmt.Sprint(string(first[:1]), number); !taken[i] {
			return i
		}
	}
}
