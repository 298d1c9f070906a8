// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
)

// podLimit is the timeout for reading the pods of claims. The kubelet waits for 45 s.
const podLimit = 5 * time.Second

// GetPod returns a pod, or the API server's error.
type GetPod func(ctx context.Context, namespace, name string) (*corev1.Pod, error)

// findPods returns the pods for which claims are reserved if the decision depends on them; otherwise none. If
// they cannot be read the claims of each container are unknown: the kubelet retries after the error.
func findPods(
	ctx context.Context, get GetPod, state State, known []Claim, claims []*resourceapi.ResourceClaim,
) ([]*corev1.Pod, error) {
	isKnown := plain(claims) && !canBeApart(state, claims)
	if _, due := split(known, claims); len(due) == 0 || isKnown && areAlone(known, claims) {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, podLimit)
	defer cancel()
	var pods []*corev1.Pod
	for _, reserved := range consumers(claims) {
		pod, err := get(ctx, claims[0].Namespace, reserved.Name)
		switch {
		case apierrors.IsNotFound(err), err == nil && pod.UID != reserved.UID: // the pod has ended
		case err != nil:
			return nil, fmt.Errorf("find pod %s/%s: %w", claims[0].Namespace, reserved.Name, err)
		default:
			pods = append(pods, pod)
		}
	}
	if len(pods) == 0 && !isKnown {
		return nil, fmt.Errorf("prepare claim %s/%s: it is not known which of its requests go to which container: "+
			"it is reserved for no pod that exists", claims[0].Namespace, claims[0].Name)
	}
	return pods, nil
}

// consumers returns the pods for which claims are reserved, without duplicates.
func consumers(claims []*resourceapi.ResourceClaim) (pods []resourceapi.ResourceClaimConsumerReference) {
	for _, claim := range claims {
		for _, reserved := range claim.Status.ReservedFor {
			if reserved.APIGroup == "" && reserved.Resource == "pods" && !slices.Contains(pods, reserved) {
				pods = append(pods, reserved)
			}
		}
	}
	return pods
}

// PodsOf returns the pods for which a claim is reserved.
func PodsOf(claim *resourceapi.ResourceClaim) (pods []Pod) {
	for _, reserved := range consumers([]*resourceapi.ResourceClaim{claim}) {
		pods = append(pods, Pod{Name: reserved.Name, UID: reserved.UID})
	}
	return pods
}

// reservedFor returns the pods of a list for which a claim is reserved.
func reservedFor(claim *resourceapi.ResourceClaim, pods []*corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool {
		return !slices.ContainsFunc(claim.Status.ReservedFor,
			func(r resourceapi.ResourceClaimConsumerReference) bool { return r.UID == pod.UID })
	})
}

// canBeApart reports whether claims have a GPU and a VF that were allocated separately.
func canBeApart(state State, claims []*resourceapi.ResourceClaim) bool {
	gpus, vfs, separate := false, false, false
	for _, claim := range claims {
		for _, result := range results(claim) {
			device := state.Pool.Devices[result.Device]
			gpu := len(device.GPUs) > 0
			vf := len(device.VFs) > 0 && (device.Type != pool.TypeGPUVF || !asksForGPU(claim, result.Request))
			gpus, vfs = gpus || gpu, vfs || vf
			separate = separate || gpu != vf // a pair is on one switch always
		}
	}
	return gpus && vfs && separate
}

// areAlone reports whether no other claim of the claims' namespace is prepared that a container of their pods
// could use too.
func areAlone(known []Claim, claims []*resourceapi.ResourceClaim) bool {
	return !slices.ContainsFunc(known, func(c Claim) bool {
		isCalled := func(claim *resourceapi.ResourceClaim) bool { return claim.UID == c.UID }
		return c.Namespace == claims[0].Namespace && !slices.ContainsFunc(claims, isCalled)
	})
}
