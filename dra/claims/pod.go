package claims

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/dra/pool"
)

// podLimit is how long the pod of claims is looked for. The kubelet waits for 45 s, and without the pod
// claims are prepared too.
const podLimit = 5 * time.Second

// findPod finds the pod of claims where it decides something; nil where it does not, or cannot be found.
func (p *Preparer) findPod(
	ctx context.Context, state State, claims []*resourceapi.ResourceClaim,
) *corev1.Pod {
	if p.isPrepared(claims) || plain(claims) && !canBeApart(state, claims) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, podLimit)
	defer cancel()
	pod, err := p.podOf(ctx, claims)
	if err != nil {
		p.Log.Warn("all requests of a claim count as one container's, and no pod's annotation is heeded",
			"claim", claims[0].Namespace+"/"+claims[0].Name, "error", err)
		return nil
	}
	return pod
}

func (p *Preparer) podOf(ctx context.Context, claims []*resourceapi.ResourceClaim) (*corev1.Pod, error) {
	if p.Pod == nil {
		return nil, errors.New("find the pod of claims: there is nobody to ask")
	}
	name, uid, err := consumer(claims)
	if err != nil {
		return nil, err
	}
	pod, err := p.Pod(ctx, claims[0].Namespace, name)
	if err != nil {
		return nil, fmt.Errorf("find pod %s/%s: %w", claims[0].Namespace, name, err)
	}
	if pod.UID != uid {
		return nil, fmt.Errorf("find pod %s/%s: it is another one by now", claims[0].Namespace, name)
	}
	return pod, nil
}

// consumer is the one pod that all claims are reserved for.
func consumer(claims []*resourceapi.ResourceClaim) (name string, uid types.UID, err error) {
	counts := map[resourceapi.ResourceClaimConsumerReference]int{}
	for _, claim := range claims {
		for _, reserved := range claim.Status.ReservedFor {
			if reserved.APIGroup == "" && reserved.Resource == "pods" {
				counts[reserved]++
			}
		}
	}
	var of []resourceapi.ResourceClaimConsumerReference
	for reserved, count := range counts {
		if count == len(claims) {
			of = append(of, reserved)
		}
	}
	if len(of) != 1 {
		return "", "", fmt.Errorf("find the pod of claims: they are reserved for %d pods in common", len(of))
	}
	return of[0].Name, of[0].UID, nil
}

// isPrepared reports whether there is nothing to decide for claims.
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

// canBeApart reports whether claims have GPUs and VFs that were allocated each by themselves.
func canBeApart(state State, claims []*resourceapi.ResourceClaim) bool {
	has := map[pool.Type]bool{}
	for _, claim := range claims {
		for _, result := range results(claim) {
			has[state.Pool.Devices[result.Device].Type] = true
		}
	}
	return (has[pool.GPU] || has[pool.GPUVF]) && has[pool.VF]
}
