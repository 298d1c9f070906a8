// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/test/tenant"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// both are all sources of whole pods.
var both = []string{podsAPI, https}

// Reasons of the kubelet for refused pods.
const unaligned, failed = "TopologyAffinityError", "UnexpectedAdmissionError"

// TestOrdinary: beside a tenant's pods with every field, which have the size of an ordinary workload, the
// answers to others are right.
func TestOrdinary(t *testing.T) {
	for _, source := range both {
		t.Run(source, func(t *testing.T) {
			n := start(t, source, unchanged, gpuProgram, vfProgram)
			for name, pods := range map[string][]corev1.Pod{
				"number":      tenant.Pods(tenant.Number, 0, tenant.Labels),
				"labels":      tenant.Pods(4, 32<<10, tenant.Labels),
				"annotations": tenant.Pods(1, tenant.Annotations, tenant.Notes),
				"annotated":   tenant.Asking(tenant.Pods(1, tenant.Annotations, tenant.Notes)),
				"quantities":  tenant.Pods(4, 32<<10, tenant.Resources),
				"classes":     tenant.Pods(4, 4<<10, tenant.Classes),
				"volumes":     tenant.Pods(4, 32<<10, tenant.Volumes),
				"claims":      tenant.Pods(4, 4<<10, tenant.Claims),
				"roles":       tenant.Pods(1, 32<<10, tenant.Roles),
				"asking":      tenant.Asking(tenant.Pods(1, 32<<10, tenant.Roles)),
				"anything":    tenant.Pods(8, 0, tenant.Anything),
				"no devices":  tenant.Asking(tenant.Pods(4, 0, tenant.Devices("0", gpuName, vfName))),
				"refused":     tenant.Refused(unaligned, tenant.Pods(20, 0, tenant.Devices("1", gpuName, vfName))),
				"too many":    tenant.Refused(failed, tenant.Pods(20, 0, tenant.Devices("9E", gpuName, vfName))),
			} {
				t.Run(name, func(t *testing.T) { n.judge(t, pods) })
			}
		})
	}
}

// TestLarge: beside the largest pods of a tenant the answers to others are right.
func TestLarge(t *testing.T) {
	skipRaced(t)
	const many = 130 << 10 // bytes of 1,500 containers
	for _, c := range []struct {
		name, source string
		pods         []corev1.Pod
	}{
		{"more than an answer", podsAPI, tenant.Pods(12, tenant.Object, tenant.Text)},
		{"more than an answer", https, tenant.Pods(12, tenant.Object, tenant.Text)},
		{"less than an answer", https, tenant.Pods(9, tenant.Object, tenant.Text)},
		{"containers", podsAPI, tenant.Pods(1, many, tenant.Containers)},
		{"containers of a newcomer", podsAPI, tenant.Asking(tenant.Pods(1, many, tenant.Containers))},
	} {
		t.Run(c.source+"/"+c.name, func(t *testing.T) {
			start(t, c.source, unchanged, gpuProgram, vfProgram).judge(t, c.pods)
		})
	}
}
