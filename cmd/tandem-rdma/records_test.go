// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"log/slog"
	"os"
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
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/test/functions"
	"github.com/tandem-k8s/tandem/test/kubelettest"
	"github.com/tandem-k8s/tandem/test/podsapi"
	"github.com/tandem-k8s/tandem/test/published"
)

// TestHintsAtTheKubelet: a container runs that was admitted with NUMA hints. A restarted daemon keeps them as
// long as the GPUs are unknown, and withdraws them when the plugin for GPUs has joined, since there are two
// VFs for each GPU. A kubelet that restarts gets the hints of then.
func TestHintsAtTheKubelet(t *testing.T) {
	t.Parallel()
	const name, held = "nvidia.com/rdma", "0000:0c:00.1"
	n := newNode(t, "oci-mi300x-derived", 2)
	n.write(t, "config.json", `{"resourceList": [{"resourceName": "rdma", "selectors": {"isRdma": true}}]}`)
	run := filepath.Join(n.kubelet, "run")
	boot, err := system.Disk{}.BootID()
	if err != nil {
		t.Fatal(err)
	}
	saved := fmt.Appendf(nil, `{"boot": %q, "listed": {}, "hidden": {},
		"hints": {%q: {"hints": true, "since": "2026-01-01T00:00:00Z", "settled": true}}}`, boot, name)
	err = os.Mkdir(run, 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(run, "vfs.json"), saved, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := published.WriteCheckpoint(n.kubelet, published.Give("first", "main", name, held)); err != nil {
		t.Fatal(err)
	}
	kubelet, _ := n.start(t)
	plugin := kubelettest.Await(t, kubelet.Plugins)
	if list := kubelettest.Await(t, plugin.Lists); !hinted(list) {
		t.Error("hints are withdrawn before the GPUs are known")
	}
	n.joinGPUs(t, run)
	for list := kubelettest.Await(t, plugin.Lists); hinted(list); {
		list = kubelettest.Await(t, plugin.Lists)
	}
	kubelet.Recreate()
	plugin = kubelettest.Await(t, kubelet.Plugins)
	if list := kubelettest.Await(t, plugin.Lists); hinted(list) || len(list) != 16 {
		t.Errorf("%d VFs, with hints %t, for a kubelet that has restarted", len(list), hinted(list))
	}
	answer, err := coordination.Status(t.Context(), run)
	want := name + ": excludeTopology auto: no NUMA hints, because under policy restricted the kubelet would " +
		"reject 5 amd.com/gpu with 5 VFs even on an empty node; false prefers this to far pairs"
	if err != nil || !slices.Contains(answer.GetNotes(), want) {
		t.Errorf("%v: the status has the notes %q, want %q", err, answer.GetNotes(), want)
	}
}

// TestHintsBesideAGoneVF: a container has a VF with a NUMA node in the kubelet's records, and the VF is gone.
// Once the hints are withdrawn no device of the list has a NUMA node: beside a single one the kubelet would
// find no NUMA nodes for the other VFs, and reject each container with VFs.
func TestHintsBesideAGoneVF(t *testing.T) {
	t.Parallel()
	const name, gone = "nvidia.com/rdma", "0000:0c:00.7"
	n := newNode(t, "oci-mi300x-derived", 2)
	n.write(t, "config.json", `{"resourceList": [{"resourceName": "rdma", "selectors": {"isRdma": true}}]}`)
	given := published.Give("first", "main", name)
	given.Devices = map[string][]string{"0": {gone}}
	if err := published.WriteCheckpoint(n.kubelet, given); err != nil {
		t.Fatal(err)
	}
	for _, d := range kubelettest.Await(t, n.startPool(t, name).Lists) {
		if d.GetTopology() != nil {
			t.Errorf("%s, %s, has a NUMA node in a list without hints", d.GetID(), d.GetHealth())
		}
	}
}

// hinted reports whether a list has NUMA nodes.
func hinted(list []*v1beta1.Device) bool {
	return slices.ContainsFunc(list, func(d *v1beta1.Device) bool { return len(d.GetTopology().GetNodes()) > 0 })
}

// joinGPUs joins the coordination as the plugin of the node's GPUs, until the test ends.
func (n node) joinGPUs(t *testing.T, runDir string) {
	t.Helper()
	plugin, err := coordination.New(coordination.Config{
		RunDir: runDir, SysRoot: n.path("sys"), KubeletDir: n.kubelet, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	tree, err := plugin.ReadTree()
	if err != nil {
		t.Fatal(err)
	}
	var gpus []device.Device
	for d := range tree.Devices() {
		if gpu.Vendor(d) != "" {
			gpus = append(gpus, device.Device{ID: d.Address.String(), Address: d.Address, NUMA: d.NUMA, Healthy: true})
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = plugin.Run(t.Context())
	}()
	t.Cleanup(func() { <-done })
	plugin.Member("amd.com/gpu", device.GPU).Publish(device.Announcement{Devices: gpus})
}

// TestHeldUnderAnotherName: a VF that a container has under the name of another resource is neither offered
// nor chosen under its present one.
func TestHeldUnderAnotherName(t *testing.T) {
	const held, free, resourceOfContainer = "0000:81:00.1", "0000:81:00.2", "nvidia.com/old"
	for name, pools := range map[string]string{ // besides pool new
		"the pool was renamed":         "",
		"the VF moved to another pool": `{"resourceName": "old", "selectors": {"pciAddresses": ["0000:82:00.1"]}},`,
	} {
		t.Run(name, func(t *testing.T) {
			s := functions.New()
			s.PF(0x81, "ens1", 2, nil)
			s.PF(0x82, "ens2", 1, nil)
			n := nodeOf(t, s.FS())
			n.write(t, "config.json", `{"resourceList": [`+pools+
				`{"resourceName": "new", "selectors": {"pciAddresses": ["`+held+`", "`+free+`"]}}]}`)
			given := published.Give("first", "main", resourceOfContainer, held)
			if err := published.WriteCheckpoint(n.kubelet, given); err != nil {
				t.Fatal(err)
			}
			stop, err := podsapi.Serve(n.kubelet, func() []corev1.Pod {
				one := corev1.ResourceList{resourceOfContainer: resource.MustParse("1")}
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
				if d.GetID() == held && d.GetHealth() == v1beta1.Healthy {
					t.Errorf("%s is offered, and a container has it as %s", held, resourceOfContainer)
				}
			}
			if chosen := prefer(t, plugin, held, free); chosen != free {
				t.Errorf("%s is preferred, and a container has it as %s", chosen, resourceOfContainer)
			}
		})
	}
}

// startPool runs the daemon until the test ends, and returns a resource that serves the coordination.
func (n node) startPool(t *testing.T, resource string) *kubelettest.Plugin {
	t.Helper()
	kubelet, daemon := n.start(t)
	t.Cleanup(func() { daemon.Stop(t, syscall.SIGTERM) })
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
