// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"fmt"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/tandem-k8s/tandem/cmd/tandem/document"
)

const tableLegend = `
same switch    pairs of a GPU and a VF of its own on one switch (PIX, C2C), of all pairs asked for
fully paired   containers with all pairs on one switch, of those that asked for both
own PF         pairs on one switch that share no PF with another pair of their container
across NUMA    pairs whose halves are on different NUMA nodes
GPU to GPU     how near a container's GPUs are to each other by PCIe, of the best that was free
refused        containers that the kubelet refused although enough devices were free
stranded       pairs of free devices that are not on one switch, mean over time
`

// Table writes the report for people: a block for every load, a line for every way of choosing.
func (r *Report) Table() []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out,
		"%s: %s on %s; kubelet policy %s%s, GPUs asked for first in %g %% of admissions\n",
		r.Node, r.devices(), document.Count(r.PFs, "PF"), r.Policy, r.hidden(), 100*r.GPUFirst)
	fmt.Fprintf(&out, "%s; %s from %d with %d arrivals each after %d; percent, mean ± 95 %% confidence\n",
		r.Mix, document.Count(r.Seeds, "seed"), r.Seed, r.Arrivals, r.Warmup)
	for i := range r.Loads {
		r.Loads[i].table(&out)
	}
	out.WriteString(tableLegend)
	return out.Bytes()
}

func (r *Report) devices() string {
	return document.Count(r.GPUs, "GPU") + ", " + document.Count(r.VFs, "VF")
}

func (r *Report) hidden() string {
	if r.ExcludeTopology {
		return ", VFs without NUMA nodes"
	}
	return ""
}

// columns are the figures of the table, in its order.
var columns = []struct {
	title string
	of    func(*Figures) *Estimate
}{
	{"same switch", func(f *Figures) *Estimate { return f.PIX }},
	{"fully paired", func(f *Figures) *Estimate { return f.Full }},
	{"own PF", func(f *Figures) *Estimate { return f.OwnPF }},
	{"across NUMA", func(f *Figures) *Estimate { return f.CrossNUMA }},
	{"GPU to GPU", func(f *Figures) *Estimate { return f.Locality }},
	{"refused", func(f *Figures) *Estimate { return f.Refused }},
	{"stranded", func(f *Figures) *Estimate { return f.Stranded }},
	{"load", func(f *Figures) *Estimate { return f.Load }},
}

func (l *Load) table(out *bytes.Buffer) {
	fmt.Fprintf(out, "\n%g %% of the GPUs allocated (%.4g arrivals per holding time)\n", l.Load, l.Rate)
	var cells bytes.Buffer
	w := tabwriter.NewWriter(&cells, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "  \t%s", strings.Repeat(" ", barWidth))
	for _, c := range columns {
		fmt.Fprintf(w, "\t%s", c.title)
	}
	fmt.Fprintln(w)
	for i := range l.Ways {
		way := &l.Ways[i]
		fmt.Fprintf(w, "  %s\t%s", way.Title, bar(way.Figures.PIX))
		for _, c := range columns {
			fmt.Fprintf(w, "\t%s", c.of(&way.Figures))
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush() // to memory
	for line := range strings.Lines(cells.String()) {
		out.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
}

// barWidth is how many columns a full bar has.
const barWidth = 20

// eighths are the ends of a bar, from one eighth of a column to seven.
var eighths = []rune("▏▎▍▌▋▊▉")

// bar draws a percentage with block characters.
func bar(e *Estimate) string {
	if e == nil {
		return ""
	}
	filled := int(e.Mean/100*barWidth*8 + 0.5)
	b := strings.Repeat("█", filled/8)
	if filled%8 > 0 {
		b += string(eighths[filled%8-1])
	}
	return b + strings.Repeat("·", max(barWidth-utf8.RuneCountInString(b), 0))
}
