// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/plane"
	"github.com/tandem-k8s/tandem/test/machines"
)

// form is a way to publish a machine.
type form struct {
	counters, taints bool
}

func (f form) String() string { return fmt.Sprintf("counters=%t,taints=%t", f.counters, f.taints) }

func (f form) build(m pool.Machine) pool.Pool {
	return pool.Build(m, pool.Options{Counters: f.counters, Taints: f.taints, VFsPerPF: 16})
}

// sick is a machine one of whose GPUs is not well, and one of whose VFs a pod has from a device plugin.
func sick(m pool.Machine) pool.Machine {
	m.GPUs, m.VFs = slices.Clone(m.GPUs), slices.Clone(m.VFs)
	if len(m.GPUs) > 0 {
		m.GPUs[0].Healthy = false
	}
	if len(m.VFs) > 0 {
		m.VFs[0].Held = "pod team/train-0, by the device plugin"
	}
	return m
}

var bothForms = []form{{counters: true, taints: true}, {}}

// TestSlices publishes the pools of all recorded machines, with and without shared counters and taints, and
// compares them with what the API server stored.
func TestSlices(t *testing.T) {
	plane.EachVersion(t, func(t *testing.T, o plane.Options) {
		o.Alone = true
		c := startCluster(t, o)
		for _, f := range bothForms {
			for _, name := range machines.Names() {
				for _, vfs := range []int{1, 16} {
					t.Run(fmt.Sprintf("%v/%s/%d", f, name, vfs), func(t *testing.T) {
						c.stores(t, "a", f.build(sick(machine(t, name, vfs))))
					})
				}
			}
		}
	})
}

// stores fails unless the API server stores a pool as it is.
func (c *cluster) stores(t *testing.T, node string, p pool.Pool) {
	t.Helper()
	defer c.forget(t)
	stored, err := c.publish(t.Context(), node, p)
	if err != nil {
		t.Fatal(err)
	}
	if len(stored) == 0 {
		t.Error("nothing is published")
	}
	for i, want := range slicesOf(node, p) {
		if diff := differs(want, stored[i]); diff != "" {
			t.Errorf("slice %d was published (-) and is stored (+) as\n%s", i, diff)
		}
	}
}

// differs tells what the API server changed, but that it says when a taint was added.
func differs(published, stored *resourceapi.ResourceSlice) string {
	stored = stored.DeepCopy()
	for _, device := range stored.Spec.Devices {
		for i := range device.Taints {
			device.Taints[i].TimeAdded = nil
		}
	}
	return cmp.Diff(published.Spec, stored.Spec, cmpopts.EquateEmpty())
}

// forget deletes all slices.
func (c *cluster) forget(t *testing.T) {
	t.Helper()
	err := c.ResourceV1().ResourceSlices().DeleteCollection(t.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
}
