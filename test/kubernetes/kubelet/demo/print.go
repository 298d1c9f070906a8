// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/pair"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/rig"
	"github.com/tandem-k8s/tandem/test/kubernetes/machine"
	"github.com/tandem-k8s/tandem/topology"
)

// printer writes for people.
type printer struct {
	out    io.Writer
	width  int
	colour bool
}

func (p *printer) printf(format string, args ...any) { fmt.Fprintf(p.out, format, args...) }

func (p *printer) legend() {
	p.printf(
		`The kubelet's own managers (topology manager: policy restricted, scope container) admit pods on recorded
machines and ask the two plugins in random order. A line below is a pair as a container finds it: its i-th GPU by the device
node (/dev/dri/renderD* of AMD, /dev/nvidia* of NVIDIA, whose library NVML is a stand-in here), where that GPU is, the i-th VF
of its variable PCIDEVICE_..., and how far apart they are:

  PIX  same switch           PXB   a switch further up        C2C  NVLink-C2C, NUMA node of Grace or Vera
  PHB  same host bridge      NODE  same NUMA node             SYS  other NUMA node

Beside it the same request without coordination: no plugin prefers a device and the kubelet chooses at random. (The VFs
are still listed in the order of the GPUs, which stock plugins do not do.)
`)
}

func (p *printer) setup(s setup, r *rig.Rig) {
	p.printf("\n%s\n%s (%s, %s)\n", p.bold("== "+s.String()), s.about, count(r.GPUs(), "GPU device"),
		count(r.VFs(), "VF"))
}

// leftOut prints the machines that are not shown, and the reason.
func (p *printer) leftOut(machines []string) {
	if len(machines) > 0 {
		p.printf("\n%s\n%s\nNVIDIA GPUs are shown by a stand-in for NVIDIA's library, which is C, "+
			"and there is no C compiler (--nvml is not given).\n",
			p.bold("== Left out"), strings.Join(machines, "\n"))
	}
}

// result prints a request: the first pod's devices for each order of the kubelet's calls.
func (p *printer) result(r result) {
	if r.refused != "" {
		p.printf("\n  %s\n    %s\n", r.request(), strings.ReplaceAll(r.refused, "\n", "\n    "))
		return
	}
	for _, first := range []string{machine.GPUsOf(r.setup.Machine), rig.VF} {
		tandem, uncoordinated := r.tandem.first[first], r.uncoordinated.first[first]
		if len(tandem) == 0 || len(uncoordinated) == 0 {
			continue
		}
		p.printf("\n  %s, %s asked first (%d of %d pods)\n", r.request(), plural(first), len(tandem),
			r.tandem.pods())
		p.beside(p.block("Tandem", tandem[0]), p.block("uncoordinated", uncoordinated[0]))
		for _, placed := range tandem {
			p.fault(placed)
		}
	}
}

// fault prints a placement that is not optimal, and the daemons' log of it.
func (p *printer) fault(placed rig.Placement) {
	if placed.Pairs == placed.Best {
		return
	}
	p.printf("\n    NOT the best, which is %v:\n", placed.Best)
	p.below(p.block("Tandem", placed))
	p.printf("%s", pair.Text(placed.Log))
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func plural(resource string) string {
	if resource == rig.VF {
		return "VFs"
	}
	return "GPUs"
}

// half is one half of the page: lines, and their ends in another colour.
type half struct{ lines, ends []string }

// halfWidth is the width of a line of a half.
const halfWidth = 46

// block describes the devices of a container.
func (p *printer) block(who string, placed rig.Placement) half {
	h := half{lines: []string{who + numa(placed.NUMA)}, ends: []string{""}}
	for i, gpu := range placed.GPUs {
		line, end := fmt.Sprintf("%-10s  %-13s", gpu.Node, gpu.Name), ""
		switch {
		case i < len(placed.VFs):
			line += "  " + placed.VFs[i].ID
			end = placed.Levels[i].String()
		case gpu.Name != gpu.Address.String():
			line += "  of " + gpu.Address.String()
		}
		h.lines, h.ends = append(h.lines, line), append(h.ends, end)
	}
	return h
}

func numa(nodes []int) string {
	switch len(nodes) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf(", NUMA node %d", nodes[0])
	default:
		return ", NUMA nodes " + strings.Trim(fmt.Sprint(nodes), "[]")
	}
}

// beside prints two halves side by side, or one below the other on a narrow page.
func (p *printer) beside(left, right half) {
	if p.width < 2*halfWidth+8 {
		p.below(left)
		p.below(right)
		return
	}
	for i := range left.lines {
		p.printf("%s\n", strings.TrimRight("    "+p.column(left, i)+"  "+p.column(right, i), " "))
	}
}

func (p *printer) below(h half) {
	for i := range h.lines {
		p.printf("%s\n", strings.TrimRight("    "+h.lines[i]+"  "+p.paint(h.ends[i]), " "))
	}
}

// column returns line i of a half, padded to its width.
func (p *printer) column(h half, i int) string {
	text := h.lines[i] + "  " + h.ends[i]
	fill := strings.Repeat(" ", max(0, halfWidth-len(text)))
	return h.lines[i] + "  " + p.paint(h.ends[i]) + fill
}

// paint colours a distance: green on the same switch, red beyond.
func (p *printer) paint(word string) string {
	var level topology.Level
	if !p.colour || level.UnmarshalText([]byte(word)) != nil {
		return word
	}
	if level.Direct() {
		return "\x1b[32m" + word + "\x1b[0m"
	}
	return "\x1b[31m" + word + "\x1b[0m"
}

func (p *printer) bold(text string) string {
	if !p.colour {
		return text
	}
	return "\x1b[1m" + text + "\x1b[0m"
}

func isTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// defaultWidth is the width for output other than to a terminal.
const defaultWidth = 120

func terminalWidth(out io.Writer) int {
	if f, ok := out.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil {
			return width
		}
	}
	return defaultWidth
}
