// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"flag"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/plane"
)

var (
	scaleNodes = flag.Int("nodes", 40, "`number` of nodes of TestScale")
	scalePods  = flag.Int("pods", 60, "`number` of pods of TestScale")
)

// scaled is how fast pods were scheduled.
type scaled struct {
	bound int           // after which no other was in a while
	took  time.Duration // from the first pod to the last
	cpu   time.Duration // of the scheduler, meanwhile
}

// stuck is how long no pod has to be bound for the others to be given up: longer than the scheduler searches
// for one.
const stuck = 30 * time.Second

// TestScale has the scheduler bind pods that ask for 1, 2, 4 and 8 pairs, on many nodes, and prints what a
// pod costs. All pods have their claims before the scheduler starts.
func TestScale(t *testing.T) {
	plane.EachVersion(t, func(t *testing.T, o plane.Options) {
		s := scale(t, o, form{counters: true, taints: true}.build(machine(t, "oci-mi300x-derived", 8)))
		if s.bound != *scalePods {
			t.Errorf("%d of %d pods are scheduled", s.bound, *scalePods)
		}
		t.Logf("Kubernetes %s, %d nodes, %d pods in %.1f s: %v of the scheduler's CPU time for a pod", o.Version,
			*scaleNodes, s.bound, s.took.Seconds(),
			(s.cpu / time.Duration(max(1, s.bound))).Round(100*time.Microsecond))
	})
}

func scale(t *testing.T, o plane.Options, p pool.Pool) (s scaled) {
	t.Helper()
	c := startCluster(t, o)
	defer c.End()
	pods := c.watch()
	c.classes()
	c.Stop("kube-scheduler")
	c.manyNodes(p)
	counts := []int{1, 2, 4, 8}
	for _, count := range counts {
		c.template(fmt.Sprint("pairs-", count), pairsOf(count))
	}
	for i := range *scalePods {
		c.create(templatePod(fmt.Sprintf("pod-%04d", i), fmt.Sprint("pairs-", counts[i%len(counts)])))
	}
	if !pods.wait(t.Context(), func(list []*v1.Pod) bool { return withClaims(list) == *scalePods }) {
		t.Fatalf("%d of %d pods have claims", withClaims(pods.pods()), *scalePods)
	}
	c.StartScheduler()
	c.follow(pods, &s)
	c.neverTwice()
	return s
}

// follow measures from the first pod that is bound to the last.
func (c *cluster) follow(pods *watched, s *scaled) {
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
	for s.bound = first; s.bound < *scalePods && more(s.bound); {
		s.bound, took, spent = bound(pods.pods()), time.Since(start), c.CPU("kube-scheduler")-cpu
	}
	share := float64(s.bound) / float64(max(1, s.bound-first))
	s.took, s.cpu = time.Duration(float64(took)*share), time.Duration(float64(spent)*share)
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
