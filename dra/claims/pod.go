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

	"github.com/tandem-k8s/tandem/dra/pool"
)

// podLimit is the timeout for reading the pods of claims. The kubelet waits for 45 s.
const podLimit = 5 * time.Second

// findPods returns the pods for which claims are reserved if the decision depends on them; otherwise none. If
// they cannot be read the devices of each container are unknown: the kubelet retries after the error.
func (p *Preparer) findPods(
	ctx context.Context, state State, claims []*resourceapi.ResourceClaim,
) ([]*corev1.Pod, error) {
	if p.isPrepared(claims) || plain(claims) && !canBeApart(state, claims) {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, podLimit)
	defer cancel()
	var pods []*corev1.Pod
	for _, reserved := range consumers(claims) {
		pod, err := p.Pod(ctx, claims[0].Namespace, reserved.Name)
		switch {
		case apierrors.IsNotFound(err), err == nil && pod.UID != reserved.UID: // the pod has ended
		case err != nil:
			return nil, fmt.Errorf("find pod %s/%s: %w", claims[0].Namespace, reserved.Name, err)
		default:
			pods = append(pods, pod)
		}
	}
	if len(pods) == 0 {
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

// reservedFor returns the pods of a list for which a claim is reserved.
func reservedFor(claim *resourceapi.ResourceClaim, pods []*corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool {
		return !slices.ContainsFunc(claim.Status.ReservedFor,
			func(r resourceapi.ResourceClaimConsumerReference) bool { return r.UID == pod.UID })
	})
}

// isPrepared reports whether claims need no decision.
func (p *Preparer) isPrepared(claims []*resourceapi.ResourceClaim) bool {
	known, err := readCheckpoint(p.Dir)
	if err != nil {
		return false
	}
	for _, claim := range claims {
		if len(results(claim)) > 0 && !find(known, claim.UID).isOf(claim) {
			return false
		}
	}
	return true
}

// canBeApart reports whether claims have GPUs and VFs that were allocated separately.
func canBeApart(state State, claims []*resourceapi.ResourceClaim) bool {
	has := map[pool.Type]bool{}
	for _, claim := range claims {
		for _, result := range results(claim) {
			has[state.Pool.Devices[result.Device].Type] = true
		}
	}
	return (has[pool.GPU] || has[pool.GPUVF]) && has[pool.VF]
}
