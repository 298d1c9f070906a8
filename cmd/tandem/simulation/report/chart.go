// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"fmt"
	"html"
	"slices"
)

// Sizes of the chart, in pixels.
const (
	chartWidth = 760
	labelWidth = 290
	plotWidth  = 380
	rowHeight  = 34
	headHeight = 84
	blockHead  = 34
	blockFoot  = 30
	barHeight  = 11
)

// chartStyle adapts the chart to a light or dark page.
const chartStyle = `<style>
.page{fill:#ffffff}text{font:13px system-ui,sans-serif;fill:#1f2328}.title{font-size:16px;font-weight:600}.quiet{fill:#59636e;font-size:12px}
.grid{stroke:#d1d9e0}.pix{fill:#0969da}.full{fill:#8250df}.ci{stroke:#1f2328;stroke-width:1.5}.ahead{stroke:#cf222e;stroke-width:2;stroke-dasharray:4 3}
@media (prefers-color-scheme:dark){.page{fill:#0d1117}text{fill:#f0f6fc}.quiet{fill:#9198a1}.grid{stroke:#3d444d}.pix{fill:#4493f8}.full{fill:#ab7df8}
.ci{stroke:#f0f6fc}.ahead{stroke:#f85149}}
</style>
`

// SVG draws the report as a self-contained picture: pairs on one switch and fully paired containers for every
// load and way of choosing, with confidence intervals.
func (r *Report) SVG() []byte {
	height := headHeight
	for i := range r.Loads {
		height += r.Loads[i].chartHeight()
	}
	var out bytes.Buffer
	fmt.Fprintf(&out,
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">`+
			"\n",
		chartWidth, height, chartWidth, height, html.EscapeString("GPUs and VFs on one switch, node "+r.Node))
	out.WriteString(chartStyle)
	fmt.Fprintf(&out, `<rect class="page" width="%d" height="%d"/>`+"\n", chartWidth, height)
	text(&out, "title", 16, 26, "start",
		fmt.Sprintf("%s: %s, kubelet policy %s%s", r.Node, r.devices(), r.Policy, r.hidden()))
	r.chartLegend(&out, 48)
	y := headHeight
	for i := range r.Loads {
		r.Loads[i].chart(&out, y)
		y += r.Loads[i].chartHeight()
	}
	out.WriteString("</svg>\n")
	return out.Bytes()
}

func (r *Report) chartLegend(out *bytes.Buffer, y int) {
	fmt.Fprintf(out, `<rect class="pix" x="16" y="%d" width="11" height="11"/>`+"\n", y-10)
	text(out, "quiet", 32, y, "start", "pairs on one switch, %")
	fmt.Fprintf(out, `<rect class="full" x="180" y="%d" width="11" height="11"/>`+"\n", y-10)
	text(out, "quiet", 196, y, "start", "containers fully paired, %")
	if slices.ContainsFunc(r.Loads, func(l Load) bool { return l.Bound != nil }) {
		fmt.Fprintf(out, `<line class="ahead" x1="380" x2="391" y1="%d" y2="%d"/>`+"\n", y-5, y-5)
		text(out, "quiet", 396, y, "start", "most pairs possible, all arrivals known ahead, %")
	}
	text(out, "quiet", 16, y+20, "start",
		fmt.Sprintf("%d seeds × %d arrivals, mean ± 95 %% confidence", r.Seeds, r.Arrivals))
}

func (l *Load) chartHeight() int { return blockHead + rowHeight*len(l.Ways) + blockFoot }

// chart draws the block of one load.
func (l *Load) chart(out *bytes.Buffer, y int) {
	text(out, "", 16, y+20, "start", fmt.Sprintf("%g %% of the GPUs allocated", l.Load))
	top, bottom := y+blockHead, y+blockHead+rowHeight*len(l.Ways)
	for tick := 0; tick <= 100; tick += 25 {
		x := atPercent(float64(tick))
		fmt.Fprintf(out, `<line class="grid" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`+"\n", x, x, top, bottom)
		text(out, "quiet", int(x), bottom+14, "middle", fmt.Sprint(tick))
	}
	for i := range l.Ways {
		w := &l.Ways[i]
		row := top + i*rowHeight
		text(out, "", labelWidth-10, row+rowHeight/2+4, "end", w.Title)
		chartBar(out, "pix", row+4, w.Figures.PIX)
		chartBar(out, "full", row+4+barHeight+2, w.Figures.Full)
	}
	if l.Bound != nil {
		x := atPercent(l.Bound.Mean)
		fmt.Fprintf(out,
			`<line class="ahead" x1="%.1f" x2="%.1f" y1="%d" y2="%d"><title>knowing ahead: %s</title></line>`+"\n", x,
			x, top-4, bottom, l.Bound)
	}
}

func chartBar(out *bytes.Buffer, class string, y int, e *Estimate) {
	if e == nil {
		return
	}
	x := atPercent(e.Mean)
	fmt.Fprintf(out, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d"><title>%s</title></rect>`+"\n",
		class, labelWidth, y, x-labelWidth, barHeight, e)
	if e.CI != nil && *e.CI > 0 {
		fmt.Fprintf(out, `<line class="ci" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`+"\n",
			atPercent(max(e.Mean-*e.CI, 0)), atPercent(min(e.Mean+*e.CI, 100)), y+barHeight/2, y+barHeight/2)
	}
	text(out, "quiet", labelWidth+plotWidth+8, y+barHeight-1, "start", e.String())
}

func atPercent(p float64) float64 { return labelWidth + p/100*plotWidth }

func text(out *bytes.Buffer, class string, x, y int, anchor, s string) {
	fmt.Fprintf(out, `<text class="%s" x="%d" y="%d" text-anchor="%s">%s</text>`+"\n", class, x, y, anchor,
		html.EscapeString(s))
}
