// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"fmt"
	"text/tabwriter"

	"github.com/tandem-k8s/tandem/cmd/tandem/document"
	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/report"
	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/world"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// Report is the result of a simulation of a cluster.
type Report struct {
	Version         document.V1  `json:"version"`
	Node            string       `json:"node"`
	Nodes           int          `json:"nodes"`
	GPUs            int          `json:"gpus"` // of a node
	VFs             int          `json:"vfs"`
	Policy          hints.Policy `json:"policy"`
	ExcludeTopology bool         `json:"excludeTopology"`
	Mix             world.Mix    `json:"mix"`
	Burst           int          `json:"burst"`
	Seed            uint64       `json:"seed"`
	Seeds           int          `json:"seeds"`
	Warmup          int          `json:"warmup"`
	Arrivals        int          `json:"arrivals"`
	Loads           []Load       `json:"loads"`
}

// Load is the result of one load.
type Load struct {
	Load       float64  `json:"load"` // offered, percent of the GPUs
	Schedulers []Result `json:"schedulers"`
}

// Result is the result of one scheduler.
type Result struct {
	Name    string  `json:"name"`
	Title   string  `json:"title"`
	Figures Figures `json:"figures"`
}

// Figures are means over the seeds; null without a value.
type Figures struct {
	Refusals *report.Estimate `json:"refusals"` // pods that the kubelet refused, per job
	Hit      *report.Estimate `json:"hit"`      // jobs with a refused pod, percent
	Lost     *report.Estimate `json:"lost"`     // failed jobs, percent
	PIX      *report.Estimate `json:"pix"`      // pairs on one switch, share of requested pairs, percent
	Full     *report.Estimate `json:"full"`     // containers with all pairs on one switch, percent
	Busy     *report.Estimate `json:"busy"`     // GPUs in use, mean over time, percent
	Wait     *report.Estimate `json:"wait"`     // minutes from arrival to start, for jobs of an hour
	Waiting  *report.Estimate `json:"waiting"`  // jobs that wait after the last arrival, percent
}

// figures is the number of Figures.
const figures = 8

func newReport(c *Config) *Report {
	return &Report{
		Node: c.Node.Name, Nodes: c.Nodes, GPUs: c.Node.Count(world.GPU), VFs: c.Node.Count(world.VF),
		Policy: c.Rules.Policy, ExcludeTopology: c.Rules.ExcludeTopology, Mix: c.Mix, Burst: c.Burst,
		Seed: c.Seed, Seeds: c.Seeds, Warmup: c.Warmup, Arrivals: c.Arrivals,
	}
}

const legend = `
refusals      pods that the kubelet refused for each job; a job makes a new pod, and is lost after six
jobs hit      jobs of which a pod was refused
jobs lost     jobs that gave up
same switch   pairs of a GPU and a VF of its own on one switch (PIX, C2C), of all pairs asked for
fully paired  containers with all pairs on one switch, of those that asked for both
busy          GPUs in use, mean over time
wait          minutes until a job runs, where jobs run for an hour on average
waiting       jobs that wait at the end: the kubelet would refuse them, or there is no room
`

// Table returns a table for people.
func (r *Report) Table() []byte {
	var out bytes.Buffer
	hidden := ""
	if r.ExcludeTopology {
		hidden = ", VFs without NUMA nodes"
	}
	fmt.Fprintf(&out, "%s of %s: %s, %s each; kubelet policy %s%s; bursts of %d\n",
		document.Count(r.Nodes, "node"), r.Node, document.Count(r.GPUs, "GPU"), document.Count(r.VFs, "VF"),
		r.Policy, hidden, r.Burst)
	fmt.Fprintf(&out, "%s; %s from %d with %d jobs each after %d; percent, mean ± 95 %% confidence\n",
		r.Mix, document.Count(r.Seeds, "seed"), r.Seed, r.Arrivals, r.Warmup)
	for _, l := range r.Loads {
		fmt.Fprintf(&out, "\n%g %% of the GPUs asked for\n", l.Load)
		w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "  node chosen by\trefusals\tjobs hit\tjobs lost\t"+
			"same switch\tfully paired\tbusy\twait\twaiting")
		for _, s := range l.Schedulers {
			f := s.Figures
			fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Title,
				fine(f.Refusals), f.Hit, f.Lost, f.PIX, f.Full, f.Busy, f.Wait, f.Waiting)
		}
		_ = w.Flush() // to memory
	}
	out.WriteString(legend)
	return out.Bytes()
}

// fine formats a figure that is usually below 1.
func fine(e *report.Estimate) string {
	switch {
	case e == nil:
		return "-"
	case e.CI == nil:
		return fmt.Sprintf("%.3f", e.Mean)
	default:
		return fmt.Sprintf("%.3f ±%.3f", e.Mean, *e.CI)
	}
}
