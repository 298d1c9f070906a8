// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/plane"
)

var (
	scaleNodes = flag.Int("nodes", 40, "`number` of nodes of TestScale")
	scalePods  = flag.Int("pods", 60, "`number` of pods of TestScale")
)

// scaled is how fast pods of one form were scheduled.
type scaled struct {
	form   string
	counts []int // of pairs that the pods ask for
	slices int
	size   int           // of a node's slices, in bytes
	bound  int           // after which no other was in a while
	took   time.Duration // from the first pod to the last
	cpu    time.Duration // of the scheduler, meanwhile
}

// stuck is how long no pod has to be bound for the others to be given up: longer than the scheduler searches
// for one.
const stuck = 30 * time.Second

// TestScale has the scheduler bind pods that ask for 1, 2, 4 and 8 pairs, on many nodes, and compares pairs
// with GPUs and VFs that are published each for itself. All pods have their claims before the scheduler
// starts. For single GPUs and VFs the last row has no pods of eight: on a node with one GPU less the
// scheduler searches for ten seconds, and starts anew.
func TestScale(t *testing.T) {
	plane.EachVersion(t, func(t *testing.T, o plane.Options) {
		m := machine(t, "oci-mi300x-derived", 8)
		rows := []scaled{
			scale(t, o, "pairs", form{counters: true, taints: true}.build(m), pairsOf, 1, 2, 4, 8),
			scale(t, o, "pairs", form{counters: true, taints: true}.build(m), pairsOf, 1, 2, 4),
			scale(t, o, "GPUs and VFs", plain(m), plainPairsOf, 1, 2, 4, 8),
			scale(t, o, "GPUs and VFs", plain(m), plainPairsOf, 1, 2, 4),
		}
		for _, row := range rows[:2] {
			if row.bound != *scalePods {
				t.Errorf("%d of %d pods with pairs are scheduled", row.bound, *scalePods)
			}
		}
		out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintf(out, "Kubernetes %s, %d nodes, %d pods\n", o.Version, *scaleNodes, *scalePods)
		fmt.Fprintln(out, "published\tpairs of a pod\tslices of a node\tKB\tbound\tseconds\tpods/s\t"+
			"scheduler CPU of a pod")
		for _, row := range rows {
			fmt.Fprintf(out, "%s\t%v\t%d\t%.1f\t%d\t%.1f\t%.1f\t%v\n", row.form, row.counts, row.slices,
				float64(row.size)/1024, row.bound, row.took.Seconds(), float64(row.bound)/row.took.Seconds(),
				(row.cpu / time.Duration(max(1, row.bound))).Round(100*time.Microsecond))
		}
		out.Flush()
	})
}

func scale(
	t *testing.T, o plane.Options, name string, p pool.Pool, claim func(int) resourceapi.DeviceClaim,
	counts ...int,
) scaled {
	t.Helper()
	c := startCluster(t, o)
	defer c.End()
	pods := c.watch()
	c.classes()
	c.Stop("kube-scheduler")
	row := scaled{form: name, counts: counts, slices: len(p.Slices), size: size(t, p)}
	c.manyNodes(p)
	for _, count := range counts {
		c.template(fmt.Sprint("pairs-", count), claim(count))
	}
	for i := range *scalePods {
		c.create(templatePod(fmt.Sprintf("pod-%04d", i), fmt.Sprint("pairs-", counts[i%len(counts)])))
	}
	if !pods.wait(t.Context(), func(list []*v1.Pod) bool { return withClaims(list) == *scalePods }) {
		t.Fatalf("%d of %d pods have claims", withClaims(pods.pods()), *scalePods)
	}
	c.StartScheduler()
	c.follow(pods, &row)
	c.neverTwice()
	return row
}

// follow measures from the first pod that is bound to the last.
func (c *cluster) follow(pods *watched, row *scaled) {
	c.t.Helper()
	more := func(than int) bool {
		return pods.waitFor(c.t.Context(), stuck, func(list []*v1.Pod) bool { return bound(list) > than })
	}
	if !pods.wait(c.t.Context(), func(list []*v1.Pod) bool { return bound(list) > 0 }) {
		c.t.Fatal("no pod is scheduled")
	}
	start, cpu := time.Now(), c.CPU("kube-scheduler")
	first := bound(pods.pods())
	var took, spent time.Duration
	for row.bound = first; row.bound < *scalePods && more(row.bound); {
		row.bound, took, spent = bound(pods.pods()), time.Since(start), c.CPU("kube-scheduler")-cpu
	}
	share := float64(row.bound) / float64(max(1, row.bound-first))
	row.took, row.cpu = time.Duration(float64(took)*share), time.Duration(float64(spent)*share)
}

// size is how many bytes the slices of a node have.
func size(t *testing.T, p pool.Pool) int {
	t.Helper()
	bytes := 0
	for _, slice := range slicesOf("a", p) {
		text, err := json.Marshal(slice)
		if err != nil {
			t.Fatal(err)
		}
		bytes += len(text)
	}
	return bytes
}

// manyNodes makes nodes with the same machine.
func (c *cluster) manyNodes(p pool.Pool) {
	c.t.Helper()
	var group errgroup.Group
	var next atomic.Int64
	for range 4 {
		group.Go(func() error {
			for i := next.Add(1); i <= int64(*scaleNodes); i = next.Add(1) {
				name := fmt.Sprintf("node-%04d", i)
				if err := c.tryNode(name); err != nil {
					return err
				}
				if _, err := c.publish(c.t.Context(), name, p); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		c.t.Fatal(err)
	}
}

// withClaims counts the pods whose claims are made.
func withClaims(pods []*v1.Pod) int {
	count := 0
	for _, pod := range pods {
		if len(pod.Status.ResourceClaimStatuses) > 0 {
			count++
		}
	}
	return count
}
