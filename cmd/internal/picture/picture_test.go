package picture

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

// draw makes the picture of a machine with all GPUs and the NICs with RDMA; look says the state of each device.
func draw(t *testing.T, machine string, vfs int, look func(topology.Address) (State, string)) *Node {
	t.Helper()
	m, err := machines.Load(machine, vfs)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := topology.Read(m.FS())
	if err != nil {
		t.Fatal(err)
	}
	n := &Node{Title: machine + " <&>", Tree: tree}
	device := func(a topology.Address) Device {
		state, owner := look(a)
		return Device{ID: a.String(), State: state, Owner: owner}
	}
	for d := range tree.Devices() {
		switch {
		case d.Class.IsGPU() && (d.Vendor == 0x1002 || d.Vendor == 0x10de):
			n.Cards = append(n.Cards, Card{Kind: GPU, Name: "GPU", Address: d.Address, Devices: []Device{device(d.Address)}})
		case d.Class.IsNetwork() && !d.IsVF() && len(d.RDMA) > 0:
			c := Card{Kind: NIC, Name: "NIC", Detail: d.RDMA[0], Address: d.Address}
			for _, vf := range d.VFs {
				c.Devices = append(c.Devices, device(vf))
			}
			n.Cards = append(n.Cards, c)
		}
	}
	return n
}

func unknown(topology.Address) (State, string) { return Unknown, "" }

// Every machine gives well-formed XML no wider than a screen, in which no box leaves the one around it or covers a neighbour.
func TestEveryMachine(t *testing.T) {
	for _, name := range machines.Names() {
		for _, vfs := range []int{1, 127} {
			n := draw(t, name, vfs, unknown)
			decoder := xml.NewDecoder(bytes.NewReader(n.SVG()))
			cells := 0
			for {
				token, err := decoder.Token()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if start, ok := token.(xml.StartElement); ok && attribute(start, "class") == "cell unknown" {
					cells++
				}
			}
			want := 0
			for _, c := range n.Cards {
				if c.Kind == NIC {
					want += len(c.Devices)
				}
			}
			if cells != want {
				t.Errorf("%s: %d VFs drawn, want %d", name, cells, want)
			}
			root := n.tree()
			root.place(pageWidth)
			if root.width > pageWidth {
				t.Errorf("%s is %d wide", name, root.width)
			}
			inside(t, name, root)
		}
	}
}

func attribute(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

func inside(t *testing.T, name string, b *box) {
	t.Helper()
	for i, c := range b.boxes {
		if c.x < 0 || c.y < 0 || c.x+c.width > b.width || c.y+c.height > b.height {
			t.Errorf("%s: %q leaves %q", name, c.label, b.label)
		}
		for _, d := range b.boxes[:i] {
			if c.x < d.x+d.width && d.x < c.x+c.width && c.y < d.y+d.height && d.y < c.y+c.height {
				t.Errorf("%s: %q covers %q", name, c.label, d.label)
			}
		}
		inside(t, name, c)
	}
}

// What is written beside a device says its state, its owner, and that it is stranded.
func TestDevices(t *testing.T) {
	n := draw(t, "oci-mi300x-derived", 1, func(a topology.Address) (State, string) {
		switch a.String() {
		case "0000:11:00.0":
			return Allocated, "team/train/<worker>"
		case "0000:0c:00.1":
			return Free, ""
		case "0000:2f:00.0":
			return Unhealthy, ""
		case "0000:46:00.0", "0000:41:00.1":
			return Planned, ""
		default:
			return Free, ""
		}
	})
	page, err := n.Page(false)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"<title>oci-mi300x-derived &lt;&amp;&gt;</title>",
		"0000:11:00.0, allocated, team/train/&lt;worker&gt;",
		"0000:0c:00.1, free, stranded",
		"0000:2f:00.0, unhealthy",
		"0000:46:00.0, planned",
		"<td>0000:11:00.0</td><td>allocated</td><td>team/train/&lt;worker&gt;</td>",
		"<td>0000:0c:00.1</td><td>free, stranded</td>",
		"<td>0000:58:00.1</td><td>free</td>",
	} {
		if !bytes.Contains(page, []byte(want)) {
			t.Errorf("no %q", want)
		}
	}
	if strings.Contains(string(page), "setInterval") {
		t.Error("a page of one moment asks for another")
	}
	if live, err := n.Page(true); err != nil || !bytes.Contains(live, []byte("setInterval")) {
		t.Errorf("a live page does not ask again: %v", err)
	}
}
