// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
)

// Report is the result of a simulation.
type Report struct {
	Version         cli.V1       `json:"version"`
	Node            string       `json:"node"`
	GPUs            int          `json:"gpus"`
	VFs             int          `json:"vfs"`
	PFs             int          `json:"pfs"`
	Policy          model.Policy `json:"policy"`
	ExcludeTopology bool         `json:"excludeTopology"`
	Mix             Mix          `json:"mix"`
	GPUFirst        float64      `json:"gpuFirst"`
	Seed            uint64       `json:"seed"`
	Seeds           int          `json:"seeds"`
	Warmup          int          `json:"warmup"`
	Arrivals        int          `json:"arrivals"`
	Loads           []Load       `json:"loads"`
}

// Load is the result of one load.
type Load struct {
	Load float64     `json:"load"` // target share of allocated GPUs, percent
	Rate float64     `json:"rate"` // arrivals per mean holding time
	Ways []wayResult `json:"ways"`
}

// wayResult is the result of one way of choosing.
type wayResult struct {
	Name     string          `json:"name"`
	Title    string          `json:"title"`
	Figures  Figures         `json:"figures"`
	Requests []requestResult `json:"requests"`
}

// requestResult is the result of one request of the mix. Figures without a meaning for the request are null.
type requestResult struct {
	Request Request   `json:"request"`
	PIX     *Estimate `json:"pix"`
	Full    *Estimate `json:"full"`
	Refused *Estimate `json:"refused"`
}

// Figures are percentages, except Stranded; null without a value.
type Figures struct {
	PIX *Estimate `json:"pix"` // pairs on one switch, of all requested pairs; no VF counts twice
	// containers with all pairs on one switch, of those with both kinds
	Full      *Estimate `json:"full"`
	OwnPF     *Estimate `json:"ownPF"`     // pairs on one switch that share no PF either, of all pairs
	CrossNUMA *Estimate `json:"crossNUMA"` // pairs across NUMA nodes, of all pairs
	// refused containers, of those with enough free devices
	Refused *Estimate `json:"refused"`
	// nearness of the GPUs by PCIe, relative to the best free set
	Locality *Estimate `json:"locality"`
	Stranded *Estimate `json:"stranded"` // pairs of free devices that do not share a switch, mean over time
	Load     *Estimate `json:"load"`     // share of GPUs allocated, mean over time
}

// Estimate is a mean over seeds with half the width of its 95 % confidence interval.
type Estimate struct {
	Mean float64  `json:"mean"`
	CI   *float64 `json:"ci"` // null for a single seed
}

// Mean returns the mean over the seeds without NaN, or nil if there are none.
func Mean(values []float64) *Estimate {
	n, sum := 0, 0.0
	for _, v := range values {
		if !math.IsNaN(v) {
			n++
			sum += v
		}
	}
	if n == 0 {
		return nil
	}
	e := &Estimate{Mean: sum / float64(n)}
	if n == 1 {
		return e
	}
	squares := 0.0
	for _, v := range values {
		if !math.IsNaN(v) {
			squares += (v - e.Mean) * (v - e.Mean)
		}
	}
	ci := student(n-1) * math.Sqrt(squares/float64(n-1)/float64(n))
	e.CI = &ci
	return e
}

// String formats the estimate with the significant digits of its interval, "-" for nil.
func (e *Estimate) String() string {
	switch {
	case e == nil:
		return "-"
	case e.CI == nil:
		return fmt.Sprintf("%.1f", e.Mean)
	case *e.CI < 0.05 && e.Mean < 10 && e.Mean > 0:
		return fmt.Sprintf("%.2f ±%.2f", e.Mean, *e.CI)
	default:
		return fmt.Sprintf("%.1f ±%.1f", e.Mean, *e.CI)
	}
}

// student returns the 97.5 % quantile of Student's t distribution: from a table for few degrees of freedom,
// else by the series of Cornish and Fisher, to three digits.
func student(freedom int) float64 {
	if table := [...]float64{12.706, 4.303, 3.182, 2.776}; freedom <= len(table) {
		return table[freedom-1]
	}
	const z = 1.959964
	n := float64(freedom)
	z3, z5, z7 := z*z*z, z*z*z*z*z, z*z*z*z*z*z*z
	return z + (z3+z)/(4*n) + (5*z5+16*z3+3*z)/(96*n*n) + (3*z7+19*z5+17*z3-15*z)/(384*n*n*n)
}

const tableLegend = `
same switch    pairs of a GPU and a VF of its own on one switch (PIX, PXB, C2C), of all pairs asked for
fully paired   containers with all pairs on one switch, of those that asked for both
own PF         pairs on one switch that share no PF with another pair of their container
across NUMA    pairs whose halves are on different NUMA nodes
GPU to GPU     how near a container's GPUs are to each other by PCIe, of the best that was free
refused        containers that the kubelet refused although enough devices were free
stranded       pairs of free devices that are not on one switch, mean over time
`

// Table writes the report for people: a block for every load, a line for every way of choosing.
func (r *Report) Table() *cli.Text {
	var out cli.Text
	fmt.Fprintf(&out,
		"%s: %s on %s; kubelet policy %s%s, GPUs asked for first in %g %% of admissions\n",
		r.Node, r.devices(), cli.Count(r.PFs, "PF"), r.Policy, r.hidden(), 100*r.GPUFirst)
	fmt.Fprintf(&out, "%s; %s from %d with %d arrivals each after %d; percent, mean ± 95 %% confidence\n",
		r.Mix, cli.Count(r.Seeds, "seed"), r.Seed, r.Arrivals, r.Warmup)
	for i := range r.Loads {
		r.Loads[i].table(&out)
	}
	fmt.Fprint(&out, tableLegend)
	return &out
}

func (r *Report) devices() string {
	return cli.Count(r.GPUs, "GPU") + ", " + cli.Count(r.VFs, "VF")
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

func (l *Load) table(out *cli.Text) {
	fmt.Fprintf(out, "\n%g %% of the GPUs allocated (%.4g arrivals per holding time)\n", l.Load, l.Rate)
	cells := []any{"  ", strings.Repeat(" ", barWidth)}
	for _, c := range columns {
		cells = append(cells, c.title)
	}
	out.Row(cells...)
	for _, way := range l.Ways {
		cells := []any{"  " + way.Title, bar(way.Figures.PIX)}
		for _, c := range columns {
			cells = append(cells, c.of(&way.Figures))
		}
		out.Row(cells...)
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
