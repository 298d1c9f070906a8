// SPDX-License-Identifier: Apache-2.0

package dra_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	fakediscovery "k8s.io/client-go/discovery/fake"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/kubelettest"
)

const nodeName = "node-1"

// cluster is an API server with one node: client-go's stand-in, with names that are made, with fields that
// are dropped, and with dry runs.
type cluster struct {
	*fake.Clientset
	t testing.TB

	mu      sync.Mutex
	off     map[string]bool // feature gates
	written int             // slices created or updated
	names   int
}

func newCluster(t testing.TB, server string, gatesOff ...string) *cluster {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "node-uid"}}
	c := &cluster{Clientset: fake.NewClientset(node), t: t, off: map[string]bool{}}
	for _, gate := range gatesOff {
		c.off[gate] = true
	}
	discovery, ok := c.Discovery().(*fakediscovery.FakeDiscovery)
	if !ok {
		t.Fatal("another discovery")
	}
	discovery.FakedServerVersion = &version.Info{GitVersion: server}
	c.PrependReactor("create", "resourceslices", c.create)
	c.PrependReactor("update", "resourceslices", c.update)
	c.PrependReactor("patch", "resourceclaims", c.patch)
	return c
}

func (c *cluster) create(action clienttesting.Action) (bool, runtime.Object, error) {
	create := action.(clienttesting.CreateActionImpl)
	slice := create.GetObject().(*resourceapi.ResourceSlice)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(slice)
	if len(create.CreateOptions.DryRun) > 0 {
		return true, slice, nil
	}
	c.written++
	c.names++
	slice.Name = fmt.Sprintf("%s%05d", slice.GenerateName, c.names)
	return false, nil, nil
}

func (c *cluster) update(action clienttesting.Action) (bool, runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.written++
	c.drop(action.(clienttesting.UpdateAction).GetObject().(*resourceapi.ResourceSlice))
	return false, nil, nil
}

// patch takes what is written into the status of a claim, by server-side apply.
func (c *cluster) patch(action clienttesting.Action) (bool, runtime.Object, error) {
	patch := action.(clienttesting.PatchAction)
	if patch.GetPatchType() != types.ApplyPatchType || patch.GetSubresource() != "status" {
		c.t.Errorf("patch of %s by %s", patch.GetSubresource(), patch.GetPatchType())
	}
	return true, &resourceapi.ResourceClaim{}, nil
}

// drop drops the fields whose gates are off.
func (c *cluster) drop(slice *resourceapi.ResourceSlice) {
	if c.off["DRAPartitionableDevices"] {
		slice.Spec.SharedCounters = nil
		for i := range slice.Spec.Devices {
			slice.Spec.Devices[i].ConsumesCounters = nil
		}
	}
	if c.off["DRADeviceTaints"] {
		for i := range slice.Spec.Devices {
			slice.Spec.Devices[i].Taints = nil
		}
	}
}

func (c *cluster) change(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do()
}

// published are the devices of all slices, by name.
func (c *cluster) published() (devices map[string]resourceapi.Device, counters int) {
	c.t.Helper()
	list, err := c.ResourceV1().ResourceSlices().List(c.t.Context(), metav1.ListOptions{})
	devices = map[string]resourceapi.Device{}
	if err != nil {
		return devices, 0
	}
	for _, slice := range list.Items {
		if slice.Spec.Driver != pool.Driver || slice.Spec.Pool.Name != nodeName ||
			*slice.Spec.NodeName != nodeName {
			c.t.Errorf("slice %s", slice.Name)
		}
		counters += len(slice.Spec.SharedCounters)
		for _, device := range slice.Spec.Devices {
			devices[device.Name] = device
		}
	}
	return devices, counters
}

// awaitPublished waits until what is published is as a test wants it.
func (c *cluster) awaitPublished(is func(devices map[string]resourceapi.Device, counters int) bool) (
	devices map[string]resourceapi.Device,
) {
	c.t.Helper()
	await(c.t, "devices are published", func() bool {
		found, counters := c.published()
		devices = found
		return is(found, counters)
	})
	return devices
}

func ofType(t pool.Type) func(map[string]resourceapi.Device) int {
	return func(devices map[string]resourceapi.Device) (n int) {
		for _, device := range devices {
			if typ := device.Attributes[pool.AttributeType].StringValue; typ != nil && *typ == string(t) {
				n++
			}
		}
		return n
	}
}

// allocate adds a claim that was allocated devices, all for one request, and reserved for a pod, and the pod.
func (c *cluster) allocate(name, pod string, devices ...string) *resourceapi.ResourceClaim {
	c.t.Helper()
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID("uid-" + name)},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "devices", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "pair." + pool.Driver},
		}}}},
		Status: resourceapi.ResourceClaimStatus{
			Allocation:  &resourceapi.AllocationResult{},
			ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod, UID: "pod-uid"}},
		},
	}
	for _, device := range devices {
		claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results,
			resourceapi.DeviceRequestAllocationResult{
				Request: "devices", Driver: pool.Driver, Pool: nodeName, Device: device,
			})
	}
	owner := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: pod, UID: "pod-uid"}}
	if err := c.Tracker().Add(owner); err != nil && !errors.IsAlreadyExists(err) {
		c.t.Fatal(err)
	}
	created, err := c.ResourceV1().ResourceClaims("team").Create(c.t.Context(), claim, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return created
}

// await waits until something is so.
func await(t testing.TB, what string, is func() bool) {
	t.Helper()
	for began := time.Now(); !is(); {
		if time.Since(began) > kubelettest.Limit {
			t.Fatalf("%s: not after %s", what, kubelettest.Limit)
		}
		select {
		case <-t.Context().Done():
			t.Fatal(what, ": ", t.Context().Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}
