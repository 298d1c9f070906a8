// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// cpuTime reads the CPU time that the daemon has used, from its metrics.
func (d *daemon) cpuTime(t testing.TB) time.Duration {
	t.Helper()
	_, metrics := d.Get(t, "/metrics")
	_, value, _ := strings.Cut(metrics, "\nprocess_cpu_seconds_total ")
	value, _, _ = strings.Cut(value, "\n")
	seconds, err := strconv.ParseFloat(value, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(seconds * float64(time.Second))
}

// settle waits until the daemon has ended the work of abandoned questions, or has used much time.
func (d *daemon) settle(t testing.TB) {
	t.Helper()
	const much = 5 * time.Second
	for last := d.cpuTime(t); ; {
		<-time.After(300 * time.Millisecond)
		next := d.cpuTime(t)
		if next == last || next > much {
			return
		}
		last = next
	}
}

// question asks the daemon of the VFs for a pod that wants one, beside a tenant's pods.
func (n *node) question(t testing.TB) {
	t.Helper()
	pod := newPod(n.newName(), 0, 1)
	n.change(func() { n.others = []corev1.Pod{pod} })
	n.prefer(t, vfName, n.ids[vfName])
}
