// SPDX-License-Identifier: Apache-2.0

package dra_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/plugins/dra"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/plugins/gpu"
)

// newClaim returns a claim with one request for a class, "gpu", "vf" or "pair", that was allocated devices.
func newClaim(name, class string, devices ...string) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID("uid-" + name)},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "devices", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class + "." + pool.Driver},
		}}}},
		Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{}},
	}
	for _, device := range devices {
		claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results,
			resourceapi.DeviceRequestAllocationResult{
				Request: "devices", Driver: pool.Driver, Pool: nodeName, Device: device,
			})
	}
	return claim
}

// newAdminClaim returns a claim with admin access to devices.
func newAdminClaim(name string, devices ...string) *resourceapi.ResourceClaim {
	claim := newClaim(name, "gpu", devices...)
	claim.Spec.Devices.Requests[0].Exactly.AdminAccess = new(true)
	for i := range claim.Status.Allocation.Devices.Results {
		claim.Status.Allocation.Devices.Results[i].AdminAccess = new(true)
	}
	return claim
}

// reserve adds a pod with one container, which uses claims, and reserves the claims for the pod.
func (c *cluster) reserve(name string, claims ...*resourceapi.ResourceClaim) {
	c.t.Helper()
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.UID = "team", name, types.UID("uid-"+name)
	container := corev1.Container{Name: "main"}
	for _, claim := range claims {
		container.Resources.Claims = append(container.Resources.Claims, corev1.ResourceClaim{Name: claim.Name})
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims,
			corev1.PodResourceClaim{Name: claim.Name, ResourceClaimName: &claim.Name})
		claim.Status.ReservedFor = append(claim.Status.ReservedFor,
			resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: name, UID: pod.UID})
		all := c.ResourceV1().ResourceClaims(claim.Namespace)
		_, err := all.Create(c.t.Context(), claim, metav1.CreateOptions{})
		if errors.IsAlreadyExists(err) {
			_, err = all.Update(c.t.Context(), claim, metav1.UpdateOptions{})
		}
		if err != nil {
			c.t.Fatal(err)
		}
	}
	pod.Spec.Containers = []corev1.Container{container}
	if err := c.Tracker().Add(pod); err != nil {
		c.t.Fatal(err)
	}
}

// specs are the CDI specs of claims.
func (n *node) specs() (names []string) {
	n.t.Helper()
	found, err := filepath.Glob(filepath.Join(n.path("cdi"), "*"))
	if err != nil {
		n.t.Fatal(err)
	}
	for _, name := range found {
		names = append(names, strings.TrimSuffix(filepath.Base(name), ".json"))
	}
	return names
}

// spec returns the CDI spec of a prepared claim, "" without one.
func (n *node) spec(claim *resourceapi.ResourceClaim) string {
	n.t.Helper()
	for _, name := range n.specs() {
		if !strings.Contains(name, string(claim.UID)) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(n.path("cdi"), name+".json"))
		if err != nil {
			n.t.Fatal(err)
		}
		return string(content)
	}
	return ""
}

func contains(list []string, one string) bool { return slices.Contains(list, one) }

// gpusAnew finds the GPUs as they are now, before a driver is started.
func gpusAnew(config *dra.Config, backend gpu.Backend) (err error) {
	config.GPUs, err = gpu.Discover(backend, 0, slog.New(slog.DiscardHandler))
	return err
}

// status is what the driver tells over its socket.
func (n *node) status(t *testing.T) (answer *api.StatusResponse) {
	t.Helper()
	await(t, "the driver tells its status", func() bool {
		told, err := coordination.Status(t.Context(), n.run())
		answer = told
		return err == nil && len(answer.GetResources()) > 0
	})
	return answer
}
