// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	"context"
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
	manyNodes = flag.Int("many", 200, "`number` of nodes of TestThousands")
	manyPods  = flag.Int("many-pods", 100, "`number` of pods that each scheduler of TestThousands gets")
	manyEvery = flag.Duration("many-every", 70*time.Millisecond,
		"`time` from one pod of TestThousands to the next")
)

// TestThousands measures, on many nodes that are half full, how long pods wait for a node and what that costs
// the scheduler: the default one and Tandem's, one after the other on the same nodes.
func TestThousands(t *testing.T) {
	eachVersion(t, func(t *testing.T, o plane.Options) {
		p, client := start(t, o)
		results := []*outcome{newOutcome(), newOutcome()}
		nodes, err := fleet.New(t.Context(), client, fleet.Options{
			Nodes: *manyNodes, VFs: 1, Full: 0.5, Late: 200 * time.Millisecond,
		}, func(pod fleet.Pod) {
			for _, result := range results {
				result.told(pod)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- nodes.Run(ctx) }()
		out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintf(out, "Kubernetes %s, %d nodes, %d pods for each row\n", o.Version, *manyNodes, *manyPods)
		fmt.Fprintln(out, "node chosen by\trefused\tbound\twaited p50\tp99\tCPU of a pod\tpairs on one switch %")
		for i, c := range []choice{choices[0], choices[2]} {
			result := results[i]
			load := fleet.Load{
				First: i * *manyPods, Pods: *manyPods, Burst: 1, Every: *manyEvery, Seed: 1, Schedulers: c.names(),
			}
			c.start(p)
			if err := c.settle(ctx, nodes, result); err != nil {
				t.Fatal(err)
			}
			spent := c.cpu(p)
			if err := load.Run(ctx, nodes, result.make); err != nil {
				t.Fatal(err)
			}
			bound := result.wait(*manyPods)
			fmt.Fprintf(out, "%s\t%d\t%d\t%v\t%v\t%v\t%.2f\n", c.name, len(result.refusals), bound,
				result.took(0.5).Round(time.Millisecond), result.took(0.99).Round(time.Millisecond),
				((c.cpu(p) - spent) / time.Duration(*manyPods)).Round(10*time.Microsecond), 100*result.pairs())
			out.Flush()
			for _, s := range c.schedulers {
				p.Stop(s.program)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if n := len(results[1].refusals); n > 0 {
			t.Errorf("%d pods are refused where Tandem's plugin sent them: %s", n,
				results[1].refusals[0].Verdict.Reason)
		}
	})
}

// settle waits until the schedulers have read the cluster: until a first pod has a node.
func (c choice) settle(ctx context.Context, nodes *fleet.Fleet, result *outcome) error {
	name := "first-of-" + c.names()[0]
	w := fleet.Wish{VFs: 1, Scheduler: c.names()[0]}
	result.make(name, w)
	if err := nodes.Create(ctx, name, w); err != nil {
		return err
	}
	if result.wait(1) == 0 {
		return fmt.Errorf("%s binds no pod", c.name)
	}
	result.forget(name)
	return nil
}
