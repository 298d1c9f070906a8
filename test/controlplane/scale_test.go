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

	"github.com/tandem-k8s/tandem/dra/pool"
	"github.com/tandem-k8s/tandem/test/controlplane/plane"
)

var (
	scaleNodes = flag.Int("nodes", 40, "`number` of nodes of TestScale")
	scalePods  = flag.Int("pods", 60, "`number` of pods of TestScale")
)

// scaled is how fast pods of one form were scheduled.
type scaled struct {
	form   string
	slices int
	size   int // of a node's slices, in bytes
	took   time.Duration
	cpu    time.Duration // of the scheduler
}

// TestScale has the scheduler bind pods that ask for 1, 2, 4 and 8 pairs, on many nodes, and compares pairs
// with GPUs and VFs that are published each for itself. All pods have their claims before the scheduler starts.
func TestScale(t *testing.T) {
	eachVersion(t, func(t *testing.T, o plane.Options) {
		m := machine(t, "oci-mi300x-derived", 8)
		rows := []scaled{
			scale(t, o, "pairs", form{counters: true, taints: true}.build(m), pairsOf),
			scale(t, o, "GPUs and VFs", plain(m), plainPairsOf),
		}
		out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintf(out, "Kubernetes %s, %d nodes, %d pods\n", o.Version, *scaleNodes, *scalePods)
		fmt.Fprintln(out, "published\tslices per node\tKB per node\tseconds\tpods/s\tscheduler CPU per pod")
		for _, row := range rows {
			fmt.Fprintf(out, "%s\t%d\t%.1f\t%.1f\t%.1f\t%v\n", row.form, row.slices, float64(row.size)/1024,
				row.took.Seconds(), float64(*scalePods)/row.took.Seconds(),
				(row.cpu / time.Duration(*scalePods)).Round(100*time.Microsecond))
		}
		out.Flush()
	})
}

func scale(
	t *testing.T, o plane.Options, name string, p pool.Pool, claim func(int) resourceapi.DeviceClaim,
) scaled {
	t.Helper()
	c := startCluster(t, o)
	pods := c.watch()
	c.classes()
	c.Stop("kube-scheduler")
	row := scaled{form: name, slices: len(p.Slices)}
	for _, slice := range slicesOf("a", p) {
		text, err := json.Marshal(slice)
		if err != nil {
			t.Fatal(err)
		}
		row.size += len(text)
	}
	c.manyNodes(p)
	counts := []int{1, 2, 4, 8}
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
	if !pods.wait(t.Context(), func(list []*v1.Pod) bool { return bound(list) > 0 }) {
		t.Fatal("no pod is scheduled")
	}
	start, cpu, first := time.Now(), c.CPU("kube-scheduler"), bound(pods.pods())
	for last := first; !pods.wait(t.Context(), func(list []*v1.Pod) bool { return bound(list) == *scalePods }); {
		if now := bound(pods.pods()); now > last {
			last = now
			continue
		}
		t.Fatalf("%d of %d pods are scheduled, and no more in %s", last, *scalePods, patience)
	}
	share := float64(*scalePods) / float64(*scalePods-first)
	row.took = time.Duration(float64(time.Since(start)) * share)
	row.cpu = time.Duration(float64(c.CPU("kube-scheduler")-cpu) * share)
	c.neverTwice()
	return row
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
