// SPDX-License-Identifier: Apache-2.0

package dra_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/apiserver"
	"github.com/tandem-k8s/tandem/test/kubelettest"
)

const nodeName = "node-1"

// cluster is an API server with one node.
type cluster struct {
	*apiserver.Server
	t testing.TB

	mu      sync.Mutex
	refused map[string]bool // methods of requests for slices that fail
	written int             // slices created or updated
}

func newCluster(t testing.TB) *cluster {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "node-uid"}}
	c := &cluster{Server: apiserver.New(node), t: t, refused: map[string]bool{}}
	c.Refuse = c.refuse
	return c
}

// refuse fails requests for slices, and counts those that write one.
func (c *cluster) refuse(r *http.Request) error {
	if !strings.Contains(r.URL.Path, "/resourceslices") {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused[r.Method] {
		return errors.NewServiceUnavailable("later")
	}
	if r.Method == http.MethodPut || r.Method == http.MethodPost && r.URL.Query().Get("dryRun") == "" {
		c.written++
	}
	return nil
}

func (c *cluster) change(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do()
}

// published are the devices of all slices, by name.
func (c *cluster) published() (devices map[string]resourceapi.Device, counters int) {
	c.t.Helper()
	devices = map[string]resourceapi.Device{}
	for _, slice := range apiserver.List[*resourceapi.ResourceSlice](c.Server) {
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
	c.Put(owner, claim)
	return claim
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
