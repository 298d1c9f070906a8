// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
)

// Prepare and unprepare of a claim among those of many other pods, with all writes to the disk, including
// p99.
func BenchmarkPrepare(b *testing.B) {
	for _, c := range []struct {
		name  string
		vfs   int
		claim func(*node) *claimOf
	}{
		{"8 pairs of 64 VFs", 8, pairsOf(8)},
		{"8 GPUs and 8 VFs of 64", 8, func(n *node) *claimOf { return n.extended("train", [2]int{8, 8}) }},
		{"8 pairs of 1016 VFs", 127, pairsOf(8)},
	} {
		b.Run(c.name, func(b *testing.B) {
			n := newNode(b, "oci-mi300x-derived", c.vfs, toldVFs, true)
			n.allocate(pool.TypeVF, 1)
			claim := c.claim(n)
			for i := range min(40, 8*c.vfs-20) {
				n.ready(n.need(fmt.Sprint("other-", i), want{"vf", pool.TypeVF, 1}))
			}
			var prepare, unprepare []time.Duration
			devices := n.used
			for b.Loop() {
				start := time.Now()
				n.ready(claim)
				prepare = append(prepare, time.Since(start))
				start = time.Now()
				if err := n.end(claim); err != nil {
					b.Fatal(err)
				}
				unprepare = append(unprepare, time.Since(start))
				n.used = devices
			}
			for name, took := range map[string][]time.Duration{"prepare": prepare, "unprepare": unprepare} {
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)*99/100])/1e6, name+"-p99-ms")
				b.ReportMetric(float64(took[len(took)/2])/1e6, name+"-p50-ms")
			}
		})
	}
}
