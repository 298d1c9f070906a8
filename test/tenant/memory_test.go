// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/test/tenant"
)

// TestMemory: beside the largest pods of a tenant a daemon takes less than half of its memory limit.
func TestMemory(t *testing.T) {
	skipRaced(t)
	n := start(t, podsAPI, unchanged, vfProgram)
	pods := tenant.Pods(11, tenant.Object, tenant.Containers)
	n.setTenant(pods)
	half, d := manifest(t, vfProgram).memory()/2, n.daemons[vfProgram]
	if half == 0 {
		t.Fatal("the manifest has no limit")
	}
	for range 10 {
		n.question(t)
		d.isBelow(t, half)
	}
	d.settle(t)
	d.isBelow(t, half)
}

// skipRaced skips a test whose kubelet has to send much in the time of a question.
func skipRaced(t *testing.T) {
	t.Helper()
	if raced {
		t.Skip("the race detector slows the kubelet of this test, which then answers too late")
	}
}

// isBelow fails the test if the daemon has taken more than an amount of memory in MiB.
func (d *daemon) isBelow(t *testing.T, half int) {
	t.Helper()
	if peak := d.Status(t, "VmHWM") >> 10; peak > half {
		t.Fatalf("the daemon takes %d MiB, more than half of its limit (%d MiB)", peak, half)
	}
}

// TestRepeatedCalls: an answer of the kubelet that is too long is the same a moment later: the daemon does
// not ask for it again and again.
func TestRepeatedCalls(t *testing.T) {
	const (
		period = 3 * time.Second
		most   = 8 // with pauses of 0.1, 0.2, 0.4 s and so on, and a question
	)
	n := start(t, podsAPI, unchanged, vfProgram)
	pods := tenant.Pods(kubelet.MaxPods/tenant.Object+2, tenant.Object, tenant.Text)
	calls := make(chan struct{}, 2*most)
	n.setTenant(pods)
	n.change(func() { n.calls = calls })
	n.question(t)
	over := time.After(period)
	for count := 0; count <= most; count++ {
		select {
		case <-over:
			return
		case <-calls:
		}
	}
	t.Errorf("asked the kubelet more than %d times within %s for an answer that is too long", most, period)
}
