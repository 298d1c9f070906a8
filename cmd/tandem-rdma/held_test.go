// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/podsapi"
	"github.com/tandem-k8s/tandem/test/published"
)

// TestHeldUnderAnotherName: a VF that a container has under the name of another resource is neither offered
// nor chosen under its present one.
func TestHeldUnderAnotherName(t *testing.T) {
	const held, free = "0000:0c:00.1", "0000:0c:00.2"
	for name, c := range map[string]struct {
		resource string // of the container
		pools    string // besides pool new
	}{
		"control: the same name": {"nvidia.com/new", ""},
		"the pool was renamed":   {"nvidia.com/old", ""},
		"the VF moved to another pool": {
			"nvidia.com/old", `{"resourceName": "old", "selectors": {"pciAddresses": ["0000:2a:00.1"]}},`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "oci-mi300x-derived", 2)
			n.write(t, "config.json", `{"resourceList": [`+c.pools+
				`{"resourceName": "new", "selectors": {"pciAddresses": ["`+held+`", "`+free+`"]}}]}`)
			given := published.Give("first", "main", c.resource, held)
			if err := published.WriteCheckpoint(n.kubelet, given); err != nil {
				t.Fatal(err)
			}
			stop, err := podsapi.Serve(n.kubelet, func() []corev1.Pod {
				one := corev1.ResourceList{corev1.ResourceName(c.resource): resource.MustParse("1")}
				return []corev1.Pod{{
					ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "first-0", UID: "first"},
					Spec: corev1.PodSpec{Containers: []corev1.Container{{
						Name: "main", Resources: corev1.ResourceRequirements{Limits: one, Requests: one},
					}}},
				}}
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(stop)
			plugin := n.startPool(t, "nvidia.com/new")
			for _, d := range kubelettest.Await(t, plugin.Lists) {
				if c.resource != "nvidia.com/new" && d.GetID() == held && d.GetHealth() == v1beta1.Healthy {
					t.Errorf("%s is offered, and a container has it as %s", held, c.resource)
				}
			}
			if chosen := prefer(t, plugin, held, free); chosen != free {
				t.Errorf("%s is preferred, and a container has it as %s", chosen, c.resource)
			}
		})
	}
}

// startPool runs the daemon until the test ends, and returns a resource that serves the coordination.
func (n node) startPool(t *testing.T, resource string) *kubelettest.Plugin {
	t.Helper()
	kubelet := kubelettest.Start(t, n.kubelet)
	cmd, stderr := n.daemon(context.WithoutCancel(t.Context()))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v\n%s", err, stderr)
		}
	})
	plugin := kubelettest.Await(t, kubelet.Plugins)
	for plugin.Request.GetResourceName() != resource {
		plugin = kubelettest.Await(t, kubelet.Plugins)
	}
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for began := time.Now(); time.Since(began) < kubelettest.Limit; <-look.C {
		answer, _ := coordination.Status(t.Context(), filepath.Join(n.kubelet, "run"))
		for _, r := range answer.GetResources() {
			if r.GetName() == resource && r.GetConnected() {
				return plugin
			}
		}
	}
	t.Fatalf("%s did not join", resource)
	panic("unreachable")
}

// prefer asks for one of some devices, again if the answer can have been that of a plugin alone.
func prefer(t *testing.T, plugin *kubelettest.Plugin, available ...string) string {
	t.Helper()
	for range 50 {
		began := time.Now()
		chosen, err := plugin.Prefer(t.Context(), slices.Clone(available), nil, 1)
		if err != nil || len(chosen) != 1 {
			t.Fatalf("preferred %v, %v", chosen, err)
		}
		if time.Since(began) < 80*time.Millisecond {
			return chosen[0]
		}
	}
	t.Fatal("this computer is too busy for an answer in time")
	panic("unreachable")
}
