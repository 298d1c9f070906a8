// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestPodOfTheSameName: a pod that replaced the pod of a claim under the same name says nothing about the
// claim's containers.
func TestPodOfTheSameName(t *testing.T) {
	t.Parallel()
	for uid, found := range map[types.UID]int{"old": 1, "new": 0} {
		pod := &corev1.Pod{}
		pod.Namespace, pod.Name, pod.UID = "team", "train", uid
		s := &claimService{parts: parts{config: Config{Client: fake.NewClientset(pod)}}}
		pods, err := s.readPods(t.Context(), []*resourceapi.ResourceClaim{claimOfPod("old")})
		if len(pods) != found || err != nil {
			t.Errorf("the pod has UID %s: %d pods, %v", uid, len(pods), err)
		}
	}
}

// TestPodCannotBeRead: the error names the pod.
func TestPodCannotBeRead(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	client.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("the API server is away")
	})
	s := &claimService{parts: parts{config: Config{Client: client}}}
	_, err := s.readPods(t.Context(), []*resourceapi.ResourceClaim{claimOfPod("old")})
	if err == nil || err.Error() != "find pod team/train: the API server is away" {
		t.Error(err)
	}
}

// claimOfPod is a claim that is reserved for a pod of a UID.
func claimOfPod(uid types.UID) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{}
	claim.Namespace = "team"
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{
		{Resource: "pods", Name: "train", UID: uid},
	}
	return claim
}
