// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/test/tenant"
)

// largest are as many pods of the largest size as an answer of the kubelet may have in its 16 MiB.
var largest = map[string]func() []corev1.Pod{
	"none":       func() []corev1.Pod { return nil },
	"text":       func() []corev1.Pod { return tenant.Pods(11, tenant.Object, tenant.Text) },
	"resources":  func() []corev1.Pod { return tenant.Pods(11, tenant.Object, tenant.Resources) },
	"containers": func() []corev1.Pod { return tenant.Pods(11, tenant.Object, tenant.Containers) },
}

// BenchmarkQuestion asks for another owner's pod beside the largest pods. An op is one question; known/op is
// the share of the answers that know the pod's request; the CPU time and the memory are the daemon's.
func BenchmarkQuestion(b *testing.B) {
	for _, source := range both {
		for _, name := range slices.Sorted(maps.Keys(largest)) {
			b.Run(source+"/"+name, func(b *testing.B) {
				n := start(b, source, unchanged, vfProgram)
				pods, d := largest[name](), n.daemons[vfProgram]
				n.question(b)
				n.setTenant(pods)
				before := d.settle(b, source)
				b.ResetTimer()
				for range b.N {
					n.question(b)
				}
				b.StopTimer()
				after := d.settle(b, source)
				per := func(used int) float64 { return float64(used) / float64(b.N) }
				b.ReportMetric(per(after.known-before.known), "known/op")
				b.ReportMetric(per(int((after.cpu - before.cpu).Milliseconds())), "cpu-ms/op")
				b.ReportMetric(per((after.allocated-before.allocated)>>20), "alloc-MiB/op")
				b.ReportMetric(float64(d.peak(b)), "peak-MiB")
			})
		}
	}
}
