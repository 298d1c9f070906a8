// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/fleet"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/plane"
)

var (
	fleetNodes = flag.Int("fleet", 100, "`number` of nodes of TestRefusals")
	loadPods   = flag.Int("load", 600, "`number` of pods of each row of TestRefusals")
	loadEvery  = flag.Duration("every", 70*time.Millisecond, "`time` from one pod of TestRefusals to the next")
)

// setting is a load under which the schedulers are compared.
type setting struct {
	name     string
	part     float64 // of the GPUs that the load asks for
	burst    int
	late     time.Duration
	restarts time.Duration
}

var settings = []setting{
	{"60 %", 0.6, 1, 200 * time.Millisecond, 0},
	{"90 %", 0.9, 1, 200 * time.Millisecond, 0},
	{"90 %, bursts of 16", 0.9, 16, 200 * time.Millisecond, 0},
	{"90 %, bursts of 16, reports 3 s late, restarts", 0.9, 16, 3 * time.Second, 5 * time.Second},
}

// TestRefusals has schedulers choose nodes for the same pods. The kubelets refuse no pod that Tandem's plugin
// sends them, unless another scheduler has sent one to the same node and Tandem's had not been told so.
func TestRefusals(t *testing.T) {
	eachVersion(t, func(t *testing.T, o plane.Options) {
		out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
		defer out.Flush()
		fmt.Fprintf(out, "Kubernetes %s, %d nodes, %d pods for each row\n", o.Version, *fleetNodes, *loadPods)
		fmt.Fprintln(out, "load\tnode chosen by\trefusals per pod\tpods hit %\t"+
			"pairs on one switch %\twaited p50\tp99\tCPU of a pod\tTandem's pods that were refused")
		for _, s := range settings {
			for _, c := range choices {
				t.Run(s.name+"/"+c.name, func(t *testing.T) { s.compare(t, o, c, out) })
			}
		}
	})
}

// compare makes one row of the table.
func (s setting) compare(t *testing.T, o plane.Options, c choice, out *tabwriter.Writer) {
	result := s.trial(c).run(t, o)
	result.print(out, s.name, c.name)
	for _, fault := range result.judged.faults {
		t.Error(fault)
	}
}

func (s setting) trial(c choice) trial {
	load := fleet.Load{Pods: *loadPods, Burst: s.burst, Every: *loadEvery, Seed: 1}
	load.Life = load.Fill(*fleetNodes, s.part)
	return trial{choice: c, load: load, fleet: fleet.Options{
		Nodes: *fleetNodes, VFs: 1, Late: s.late, Restarts: s.restarts,
	}}
}

func (o *outcome) print(out *tabwriter.Writer, load, choice string) {
	jobs := float64(len(o.made))
	fmt.Fprintf(out, "%s\t%s\t%.3f\t%.1f\t%.2f\t%v\t%v\t%v\t%v\n", load, choice,
		float64(len(o.refusals))/jobs, 100*float64(len(o.hit))/jobs, 100*o.pairs(),
		o.took(0.5).Round(10*time.Millisecond), o.took(0.99).Round(10*time.Millisecond),
		o.cpu.Round(100*time.Microsecond), o.judged)
	out.Flush()
}
