// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

// draw makes the picture of a machine with all GPUs and the NICs with RDMA; look says the state of each
// device.
func draw(t *testing.T, machine string, vfs int, look func(topology.Address) (State, string)) *Node {
	t.Helper()
	_, tree := machines.Read(t, machine, vfs)
	n := &Node{Title: machine + " <&>", Tree: tree}
	device := func(a topology.Address) Device {
		state, owner := look(a)
		return Device{ID: a.String(), State: state, Owner: owner}
	}
	for d := range tree.Devices() {
		switch {
		case d.Class.IsGPU() && (d.Vendor == 0x1002 || d.Vendor == 0x10de):
			n.Cards = append(n.Cards, Card{
				Kind: model.GPU, Name: "GPU", Address: d.Address, Devices: []Device{device(d.Address)},
			})
		case d.Class.IsNetwork() && !d.IsVF() && len(d.RDMA) > 0:
			c := Card{Kind: model.VF, Name: "NIC", Detail: d.RDMA[0], Address: d.Address}
			for _, vf := range d.VFs {
				c.Devices = append(c.Devices, device(vf))
			}
			n.Cards = append(n.Cards, c)
		}
	}
	return n
}

func unknown(topology.Address) (State, string) { return Unknown, "" }

// Every machine gives well-formed XML no wider than a screen, in which boxes are inside their parents and do
// not overlap.
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
				if start, ok := token.(xml.StartElement); ok && attribute(start, "class") == "cell unknown" &&
					attribute(start, "data-key") != "" {
					cells++
				}
			}
			want := 0
			for _, c := range n.Cards {
				if c.Kind == model.VF {
					want += len(c.Devices)
				}
			}
			if cells != want {
				t.Errorf("%s: %d VFs drawn, want %d", name, cells, want)
			}
			for _, limit := range []int{Wide, middle, Narrow} {
				root := n.buildTree()
				root.placeBoxes(limit)
				if root.width > limit {
					t.Errorf("%s is %d wide, want at most %d", name, root.width, limit)
				}
				inside(t, name, root)
			}
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
			t.Errorf("%s: %q leaves %q", name, c.title, b.title)
		}
		for _, d := range b.boxes[:i] {
			if c.x < d.x+d.width && d.x < c.x+c.width && c.y < d.y+d.height && d.y < c.y+c.height {
				t.Errorf("%s: %q covers %q", name, c.title, d.title)
			}
		}
		inside(t, name, c)
	}
}

// The text of a device has its state, its owner, and whether it is stranded.
func TestDevices(t *testing.T) {
	n := draw(t, "oci-mi300x-derived", 1, func(a topology.Address) (State, string) {
		switch a.String() {
		case "0000:11:00.0":
			return Allocated, "team/train/<worker>"
		case "0000:0c:00.1":
			return Stranded, ""
		case "0000:2a:00.1":
			return AllocatedUnhealthy, "team/other/worker"
		case "0000:2f:00.0":
			return Unhealthy, ""
		case "0000:46:00.0", "0000:41:00.1":
			return Planned, ""
		default:
			return Free, ""
		}
	})
	page, err := Page{Title: n.Title, Node: n, Renew: time.Second}.HTML()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"<title>oci-mi300x-derived &lt;&amp;&gt;</title>", `data-every="1000"`,
		"0000:11:00.0, allocated, team/train/&lt;worker&gt;",
		"0000:0c:00.1, stranded: free",
		`class="card allocated o1"`, `class="cell allocated unhealthy o0"`, `<text class="name end"`, ">tr</text>",
		"0000:2f:00.0, unhealthy",
		"0000:46:00.0, planned",
		"<td>0000:11:00.0</td><td>allocated</td><td>team/train/&lt;worker&gt;</td>",
		"<td>0000:0c:00.1</td><td>stranded</td><td></td>",
		"<td>0000:58:00.1</td><td>free</td><td></td>",
		"<th>Device</th><th>State</th><th>Owner</th></tr>", // no column without a value
		`<text class="place" x="30" y="`, ">Switch 0</text>", ">0000:08:00.0</text>",
		"<title>pci0000:07 › 0000:07:00.0 › 0000:08:00.0</title>",
	} {
		if !bytes.Contains(page, []byte(want)) {
			t.Errorf("no %q", want)
		}
	}
}

// The policy allows what is in a page, byte for byte, and nothing is in it that would need more.
func TestPolicy(t *testing.T) {
	page, err := Page{Title: "node", Node: draw(t, "oci-mi300x-derived", 1, unknown)}.HTML()
	if err != nil {
		t.Fatal(err)
	}
	inline := regexp.MustCompile(`(?s)<(?:script|style)>(.*?)</(?:script|style)>`).FindAllSubmatch(page, -1)
	if len(inline) != 3 {
		t.Fatalf("%d scripts and styles, want 3", len(inline))
	}
	for _, text := range inline {
		if !strings.Contains(Policy, hashSource(string(text[1]))) {
			t.Errorf("the policy %s does not allow %.60q", Policy, text[1])
		}
	}
	for _, outside := range []string{"src=", "style=", "onclick=", "@import", "url(http"} {
		if bytes.Contains(page, []byte(outside)) {
			t.Errorf("the page has %q", outside)
		}
	}
}
