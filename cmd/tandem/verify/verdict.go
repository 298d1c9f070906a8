// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
)

// TrafficReport has the results of all pairs, in JSON.
type TrafficReport struct {
	Direction string        `json:"direction"` // of the traffic
	Seconds   int           `json:"seconds"`   // of the bandwidth test of each pair; unused with gib
	GiB       int           `json:"gib"`       // bytes of the bandwidth test of each pair; 0 for no limit of its own
	Min       int           `json:"min"`       // least bandwidth in percent of the best pair's
	MinRate   int           `json:"minRate"`   // least bandwidth in percent of the port's rate
	Pairs     []TrafficPair `json:"pairs"`
	Runs      []trafficRun  `json:"runs"`
	Failures  []string      `json:"failures"`
}

// TrafficPair is the result of a pair.
type TrafficPair struct {
	Index int `json:"index"`
	Facts
	Speed
	LatencyMemory memory `json:"latencyMemory,omitempty"`
	// Verdict is "ok", "slow" (below a threshold), or "failed" (no run without an error).
	Verdict string `json:"verdict"`
	// Reasons are known causes of a slow or failed pair.
	Reasons []string `json:"reasons"`
}

// Speed is the measured traffic of a pair.
type Speed struct {
	Memory  memory  `json:"memory"`        // "host", "gpu" or "dmabuf"; "" for unknown
	Gbps    float64 `json:"gbps"`          // of the better run: the pair writes, or is written to
	Latency float64 `json:"microseconds"`  // of a read of 8 bytes, median; 0 for unknown
	OfBest  int     `json:"percentOfBest"` // rounded down
	OfRate  int     `json:"percentOfRate"` // rounded down; 0 for an unknown rate
}

// Verdicts of a pair.
const (
	ok     = "ok"
	slow   = "slow"
	failed = "failed"
)

// judgeRuns compares the pairs with the best one and with their ports. In a ring each pair has two runs. A
// slow pair is slow in both, its neighbours in one: the better run is the pair's. A slow run between two
// pairs that are fast in their other runs is a failure of its own.
func judgeRuns(ends []trafficEnd, runs []trafficRun, least, leastRate int) *TrafficReport {
	r := &TrafficReport{Min: least, MinRate: leastRate, Runs: runs, Failures: []string{}}
	for i, e := range ends {
		r.Pairs = append(r.Pairs, newPair(i, e.Facts, runs))
	}
	var best TrafficPair
	for _, p := range r.Pairs {
		if p.Gbps > best.Gbps {
			best = p
		}
	}
	for i := range r.Pairs {
		p := &r.Pairs[i]
		p.OfBest, p.OfRate = percentOf(p.Gbps, best.Gbps), percentOf(p.Gbps, p.RateGbps)
		low := isBelow(p.Gbps, best.Gbps, least) || isBelow(p.Gbps, p.RateGbps, leastRate)
		if low && p.Verdict == ok {
			p.Verdict = slow
		}
		if p.Verdict != ok {
			p.Reasons = append(p.Reasons, p.listReasons(best)...)
			if p.inHost() && best.Memory != hostMemory && best.Memory != "" {
				p.Reasons = append(p.Reasons, "host memory, the best pair's is the GPU's")
			}
		}
	}
	r.listFailures(best)
	return r
}

// listFailures adds the failed runs, the slow pairs, and the slow runs of fast pairs.
func (r *TrafficReport) listFailures(best TrafficPair) {
	add := func(format string, arguments ...any) {
		r.Failures = append(r.Failures, fmt.Sprintf(format, arguments...))
	}
	for _, run := range r.Runs {
		if run.Err != "" {
			add("%s: %s", run.nameOfRun(), run.Err)
		}
	}
	for _, p := range r.Pairs {
		if p.Verdict == slow {
			add("pair %d: %s", p.Index, p.describeSlow(best))
		}
	}
	for _, run := range r.Runs {
		isBetween := run.Err == "" && run.From >= 0 && run.To >= 0
		if isBetween && isBelow(run.Gbps, best.Gbps, r.Min) && r.Pairs[run.From].Verdict == ok &&
			r.Pairs[run.To].Verdict == ok {
			add("%s: %d %% of the best pair, %s, and both pairs are faster in their other runs: pair %d sends "+
				"slowly, pair %d receives slowly, or the way between them is slow",
				run.nameOfRun(), percentOf(run.Gbps, best.Gbps), compareRates(run.Gbps, best.Gbps), run.From, run.To)
		}
	}
}

// newPair returns a pair with the results of its runs.
func newPair(index int, f Facts, runs []trafficRun) TrafficPair {
	p := TrafficPair{Index: index, Facts: f, Verdict: failed, Reasons: []string{}}
	for _, run := range runs {
		if run.From != index && run.To != index {
			continue
		}
		p.Gbps = max(p.Gbps, run.Gbps)
		if run.From == index || run.From < 0 {
			p.Memory, p.Latency, p.LatencyMemory = run.Memory, run.Latency, run.LatencyMemory
		}
		if run.Err == "" {
			p.Verdict = ok
		}
	}
	return p
}

// isBelow reports whether a bandwidth is below a percentage of another; of an unknown one it is not.
func isBelow(gbps, of float64, least int) bool { return of > 0 && gbps*100 < of*float64(least) }

func percentOf(gbps, of float64) int {
	if of <= 0 {
		return 0
	}
	return int(gbps * 100 / of)
}

func compareRates(gbps, of float64) string { return fmt.Sprintf("%.2f of %.2f Gb/s", gbps, of) }

// nameOfRun names the run for people.
func (r trafficRun) nameOfRun() string {
	switch {
	case r.From < 0:
		return fmt.Sprintf("pair %d", r.To)
	case r.To < 0 || r.From == r.To:
		return fmt.Sprintf("pair %d", r.From)
	}
	return fmt.Sprintf("pair %d to pair %d", r.From, r.To)
}

// listReasons returns the known facts that make a pair slower than the best one.
func (f Facts) listReasons(best TrafficPair) (list []string) {
	add := func(format string, arguments ...any) { list = append(list, fmt.Sprintf(format, arguments...)) }
	if f.GPU != "" && !f.Distance.Direct() {
		add("GPU and VF are %s apart", f.Distance)
	}
	for _, redirect := range f.Redirects {
		add("ACS redirect at %s", redirect)
	}
	if f.PCIe.Narrow() {
		add("PCIe width %d of %d", f.PCIe.Width, f.PCIe.MaxWidth)
	}
	if f.PCIe.Slow() {
		add("PCIe %g of %g GT/s", f.PCIe.Speed, f.PCIe.MaxSpeed)
	}
	if f.GPULanes > 0 && f.GPULanes < f.GPUMax {
		add("the GPU's PCIe width %d of %d", f.GPULanes, f.GPUMax)
	}
	if f.State != "" && !strings.HasSuffix(f.State, "ACTIVE") {
		add("port %s", f.State)
	}
	if f.RateGbps > 0 && f.RateGbps < best.RateGbps {
		add("port rate %g Gb/s, the best pair's %g", f.RateGbps, best.RateGbps)
	}
	return list
}

// describeSlow describes a slow pair: "41 % of the best pair, 38.1 of 92.4 Gb/s: PCIe width 4 of 16".
func (p TrafficPair) describeSlow(best TrafficPair) string {
	text := fmt.Sprintf("%d %% of the best pair, %s", p.OfBest, compareRates(p.Gbps, best.Gbps))
	if p.OfBest == 100 {
		text = fmt.Sprintf("%d %% of the port's rate, %s", p.OfRate, compareRates(p.Gbps, p.RateGbps))
	}
	if p.inHost() {
		text += " in host memory"
	}
	if len(p.Reasons) == 0 {
		return text + ": no reason in sysfs"
	}
	return text + ": " + strings.Join(p.Reasons, ", ")
}

// IsGood reports whether the pair misses no threshold.
func (p TrafficPair) IsGood() bool { return p.Verdict == ok }

// inHost reports whether the GPU takes no part.
func (p TrafficPair) inHost() bool { return p.GPU != "" && p.Memory == hostMemory }

// writeTable writes a table for people.
func (r *TrafficReport) writeTable(out *cli.Text) {
	out.Row("PAIR", "GPU", "VF", "MEMORY", "Gb/s", "OF BEST", "OF RATE", "READ", "VERDICT")
	for _, p := range r.Pairs {
		out.Row(p.tableCells()...)
	}
	amount, rate := fmt.Sprintf("%d s", r.Seconds), ""
	if r.GiB > 0 {
		amount = fmt.Sprintf("%d GiB", r.GiB)
	}
	if r.MinRate != 0 {
		rate = fmt.Sprintf(", %d %% of the port's rate", r.MinRate)
	}
	fmt.Fprintf(out, "\ntraffic %s, %s for each pair; threshold %d %% of the best pair%s\n",
		r.Direction, amount, r.Min, rate)
	for _, note := range r.listNotes() {
		fmt.Fprintln(out, note)
	}
}

// tableCells returns the row of the table; "-" is unknown.
func (p TrafficPair) tableCells() []any {
	memory := string(p.Memory)
	switch p.Memory {
	case dmaBuf:
		memory = "GPU (dmabuf)"
	case peerMemory:
		memory = "GPU"
	}
	gbps, ofBest, ofRate, read := "-", "-", "-", "-"
	if p.Gbps != 0 {
		gbps, ofBest = fmt.Sprintf("%.2f", p.Gbps), fmt.Sprintf("%d %%", p.OfBest)
		if p.RateGbps != 0 {
			ofRate = fmt.Sprintf("%d %% of %g", p.OfRate, p.RateGbps)
		}
	}
	if p.Latency != 0 {
		read = fmt.Sprintf("%.2f µs", p.Latency)
		if p.LatencyMemory == hostMemory && p.Memory != hostMemory {
			read += " (host)"
		}
	}
	return []any{
		p.Index, cmp.Or(p.GPU, "-"), p.VF, memory, gbps, ofBest, ofRate, read, p.describeVerdict(),
	}
}

func (p TrafficPair) describeVerdict() cli.Cell {
	verdict, where := cli.Bad, ""
	if p.IsGood() {
		verdict = cli.Good
	}
	if p.inHost() {
		where = " in host memory"
	}
	return cli.NewCell(verdict.Of(p.Verdict), strings.Join(append([]string{where}, p.Reasons...), ", "))
}

// listNotes returns what the numbers do not prove.
func (r *TrafficReport) listNotes() (notes []string) {
	if slices.ContainsFunc(r.Pairs, TrafficPair.inHost) {
		notes = append(notes, "host memory: the GPUs took no part, because perftest has no option "+
			"for them, or --traffic-memory is host")
	}
	if len(r.Pairs) == 1 {
		notes = append(notes, "one pair: there is no other to compare with; --traffic-min-rate sets a threshold")
	}
	if slices.ContainsFunc(r.Runs, func(run trafficRun) bool { return run.From < 0 || run.To < 0 }) {
		notes = append(notes, "reasons are of this container's end; those of the other end are in its own output")
	}
	return notes
}
