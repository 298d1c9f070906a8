// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/plane"
)

// TestGatesOff has the daemon publish where the API server drops shared counters and taints: with the gates
// off, and as Kubernetes 1.34 and 1.35 have them by default. It notices, says so, and publishes pairs in the
// form that needs neither; claims for pairs get pairs.
func TestGatesOff(t *testing.T) {
	plane.EachVersion(t, func(t *testing.T, o plane.Options) {
		off, old := o, o
		off.Gates = map[string]bool{
			"DRAPartitionableDevices": false, "DRADeviceTaints": false, "DRADeviceTaintRules": false,
		}
		old.As = "1.35"
		older := o
		older.As = "1.34"
		for name, o := range map[string]plane.Options{"gates off": off, "as 1.35": old, "as 1.34": older} {
			t.Run(name, func(t *testing.T) {
				c := startCluster(t, o)
				c.apply(manifests)
				h := newChurn(t, c)
				w := c.join("a", "oci-mi300x-derived", 4)
				w.judge = h.judge
				h.workers = []*worker{w}
				c.withoutCounters(t, w)
				for _, n := range []int{1, 4, 8} {
					template := fmt.Sprint("tandem-pairs-", n)
					c.template(template, pairsOf(n)) // some of the manifests' take gates
					h.once(w, "template", templatePod("", template), want{gpus: n, vfs: n, pairs: n})
				}
				if o.As != "" {
					return // without extended resources
				}
				for _, kind := range []string{"pair", "unchanged"} {
					h.once(w, kind, h.kinds(w, 4)[kind], want{gpus: 4, vfs: 4, pairs: 4})
				}
			})
		}
	})
}

// withoutCounters fails unless the node's slices have no counters, and the daemon has said that it is so.
func (c *cluster) withoutCounters(t *testing.T, w *worker) {
	t.Helper()
	slices, err := c.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, slice := range slices.Items {
		if len(slice.Spec.SharedCounters) > 0 {
			t.Errorf("slice %s has counters", slice.Name)
		}
		for _, device := range slice.Spec.Devices {
			if len(device.ConsumesCounters) > 0 || len(device.Taints) > 0 {
				t.Errorf("device %s has counters or taints", device.Name)
			}
		}
	}
	for line := range strings.Lines(w.daemon.Text()) {
		if strings.Contains(line, "DRAPartitionableDevices") || strings.Contains(line, "1.3") {
			t.Log(strings.TrimSpace(line[strings.Index(line, `"level"`):]))
		}
	}
	if !strings.Contains(w.daemon.Text(), "PartitionableDevices") {
		t.Errorf("the daemon does not say which gate is off: %s", w.daemon.Text())
	}
}
