// SPDX-License-Identifier: Apache-2.0

package dra_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/kubernetes/dra/claim"
	"github.com/tandem-k8s/tandem/test/kubernetes/dra/form"
	"github.com/tandem-k8s/tandem/test/kubernetes/dra/node"
	"github.com/tandem-k8s/tandem/test/kubernetes/dra/scheduler"
)

// BenchmarkClaim allocates pairs on a free node with 8 GPUs and 64 VFs: devices that are pairs, and GPUs and
// VFs that constraints match (by=plain). Beside the mean it reports the median.
func BenchmarkClaim(b *testing.B) {
	m, err := node.Read("oci-mi300x-derived", 8)
	if err != nil {
		b.Fatal(err)
	}
	counters := scheduler.Minor >= 36
	for _, way := range []struct {
		name   string
		slices []pool.Slice
		claim  func(name string, pairs int) *resourceapi.ResourceClaim
	}{
		{"pair", build(m, pool.Options{Counters: counters, Taints: counters}).Slices, pairsClaim},
		{"plain", form.Plain(m), claim.Plain},
	} {
		s := scheduler.New(scheduler.Publish(pool.Driver, way.slices), classes(b), scheduler.Defaults())
		for _, pairs := range []int{1, 4, 8} {
			b.Run(fmt.Sprintf("pairs=%d/by=%s", pairs, way.name), func(b *testing.B) {
				measure(b, s, way.claim("claim", pairs))
			})
		}
	}
}

func pairsClaim(name string, pairs int) *resourceapi.ResourceClaim {
	return claim.Spec{Pairs: pairs}.Claim(name)
}

// measure allocates a claim again and again.
func measure(b *testing.B, s *scheduler.Scheduler, c *resourceapi.ResourceClaim) {
	b.Helper()
	var samples []time.Duration
	for b.Loop() {
		start := time.Now()
		result, err := s.Allocate(b.Context(), c)
		samples = append(samples, time.Since(start))
		if err != nil || result == nil {
			b.Fatalf("found %v, %v", result, err)
		}
	}
	slices.Sort(samples)
	b.ReportMetric(float64(samples[len(samples)/2].Nanoseconds()), "p50-ns")
}
