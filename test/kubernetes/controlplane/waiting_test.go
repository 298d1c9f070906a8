// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/plane"
)

// TestInfeasibleClaimDelaysNobody has a pod wait for eight pairs that a node of eight GPUs cannot give, since
// one switch has no VF, and looks how long pods without devices wait meanwhile. The same is measured of GPUs
// and VFs that are published each for itself: there the scheduler searches until it gives up, and nobody is
// scheduled meanwhile.
func TestInfeasibleClaimDelaysNobody(t *testing.T) {
	plane.EachVersion(t, func(t *testing.T, o plane.Options) {
		m := machine(t, "oci-mi300x-derived", 8)
		m = without(m, m.GPUs[0].Switch)
		pairs := waitBeside(t, o, form{counters: true, taints: true}.build(m), pairsOf(len(m.GPUs)))
		single := waitBeside(t, o, plain(m), plainPairsOf(len(m.GPUs)))
		t.Logf("pods without devices waited at most %v beside an infeasible claim for pairs, %v beside one for "+
			"GPUs and VFs", pairs.Round(time.Millisecond), single.Round(time.Millisecond))
		if pairs > single/3 {
			t.Errorf("a claim for pairs delays other pods by %v, one for GPUs and VFs by %v", pairs, single)
		}
	})
}

// waitBeside tells how long pods without devices wait, at most, while a claim cannot be allocated.
func waitBeside(t *testing.T, o plane.Options, p pool.Pool, claim resourceapi.DeviceClaim) time.Duration {
	t.Helper()
	c := startCluster(t, o)
	pods := c.watch()
	c.classes()
	c.node("a")
	if _, err := c.publish(t.Context(), "a", p); err != nil {
		t.Fatal(err)
	}
	c.template("all", claim)
	c.schedules(pods, podOf("first"))
	c.create(templatePod("waits", "all"))
	c.hasClaim("waits")
	worst := time.Duration(0)
	for i := range 12 {
		worst = max(worst, c.schedules(pods, podOf(fmt.Sprint("other-", i))))
	}
	for _, pod := range pods.pods() {
		if pod.Name == "waits" && pod.Spec.NodeName != "" {
			t.Error("a claim was allocated that no node can give")
		}
	}
	return worst
}

// schedules tells how long the scheduler takes for a pod.
func (c *cluster) schedules(pods *watched, pod *v1.Pod) time.Duration {
	c.t.Helper()
	start := time.Now()
	c.create(pod)
	ok := pods.wait(c.t.Context(), func(list []*v1.Pod) bool {
		for _, other := range list {
			if other.Name == pod.Name {
				return other.Spec.NodeName != ""
			}
		}
		return false
	})
	if !ok {
		c.t.Fatalf("pod %s is not scheduled after %s", pod.Name, patience)
	}
	return time.Since(start)
}

// hasClaim waits until the claim of a pod is made: from then on the scheduler looks at the pod.
func (c *cluster) hasClaim(pod string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	if err := c.claimed(ctx, pod); err != nil {
		c.t.Fatal(err)
	}
}
