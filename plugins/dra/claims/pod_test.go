// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
)

// A pod that replaced the pod of a claim under the same name says nothing about the claim's containers.
func TestPodOfTheSameName(t *testing.T) {
	t.Parallel()
	claim := &resourceapi.ResourceClaim{}
	claim.UID = "claim"
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{
		{Resource: "pods", Name: "train", UID: "old"},
	}
	claim.Status.Allocation = &resourceapi.AllocationResult{}
	for _, name := range []string{"gpus", "vfs"} {
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, resourceapi.DeviceRequest{Name: name})
		claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results,
			resourceapi.DeviceRequestAllocationResult{Request: name, Driver: pool.Driver})
	}
	for uid, found := range map[types.UID]int{"old": 1, "new": 0} {
		get := func(context.Context, string, string) (*corev1.Pod, error) {
			pod := &corev1.Pod{}
			pod.Name, pod.UID = "train", uid
			return pod, nil
		}
		pods, err := findPods(t.Context(), get, State{}, nil, []*resourceapi.ResourceClaim{claim})
		if len(pods) != found || (err == nil) != (found > 0) {
			t.Errorf("the pod has UID %s: %d pods, %v", uid, len(pods), err)
		}
	}
}
