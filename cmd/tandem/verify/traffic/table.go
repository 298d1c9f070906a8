// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Write writes a table for people.
func (r *Report) Write(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PAIR\tGPU\tVF\tMEMORY\tGb/s\tOF BEST\tOF RATE\tREAD\tVERDICT")
	for _, p := range r.Pairs {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", p.Index, cmp.Or(p.GPU, "-"), p.VF, p.memory(),
			p.gbps(), p.ofBest(), p.ofRate(), p.read(), p.verdict())
	}
	_ = w.Flush() // the writer is memory
	fmt.Fprintf(out, "\ntraffic %s, %s for each pair; threshold %d %% of the best pair%s\n",
		r.Direction, r.amount(), r.Min, r.rateThreshold())
	for _, note := range r.notes() {
		fmt.Fprintln(out, note)
	}
}

func (r *Report) amount() string {
	if r.GiB > 0 {
		return fmt.Sprintf("%d GiB", r.GiB)
	}
	return fmt.Sprintf("%d s", r.Seconds)
}

func (r *Report) rateThreshold() string {
	if r.MinRate == 0 {
		return ""
	}
	return fmt.Sprintf(", %d %% of the port's rate", r.MinRate)
}

// notes returns what the numbers do not prove.
func (r *Report) notes() (notes []string) {
	if slices.ContainsFunc(r.Pairs, Pair.inHost) {
		notes = append(notes, "host memory: the GPUs took no part, because perftest has no option "+
			"for them, or --traffic-memory is host")
	}
	if len(r.Pairs) == 1 {
		notes = append(notes, "one pair: there is no other to compare with; --traffic-min-rate sets a threshold")
	}
	if slices.ContainsFunc(r.Runs, Run.toAnother) {
		notes = append(notes, "reasons are of this container's end; those of the other end are in its own output")
	}
	return notes
}

func (p Pair) verdict() string {
	text := p.Verdict
	if p.inHost() {
		text += " in host memory"
	}
	return strings.Join(append([]string{text}, p.Reasons...), ", ")
}

func (p Pair) memory() string {
	switch p.Memory {
	case DMABuf:
		return "GPU (dmabuf)"
	case Peer:
		return "GPU"
	}
	return string(p.Memory)
}

func (p Pair) gbps() string {
	if p.Gbps == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", p.Gbps)
}

func (p Pair) ofBest() string {
	if p.Gbps == 0 {
		return "-"
	}
	return fmt.Sprintf("%d %%", p.OfBest)
}

func (p Pair) ofRate() string {
	if p.RateGbps == 0 || p.Gbps == 0 {
		return "-"
	}
	return fmt.Sprintf("%d %% of %g", p.OfRate, p.RateGbps)
}

func (p Pair) read() string {
	if p.Latency == 0 {
		return "-"
	}
	text := fmt.Sprintf("%.2f µs", p.Latency)
	if p.LatencyMemory == Host && p.Memory != Host {
		text += " (host)"
	}
	return text
}
