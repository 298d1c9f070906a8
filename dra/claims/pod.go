// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tandem-k8s/tandem/dra/pool"
)

// podLimit is the timeout for reading the pods of claims. The kubelet waits for 45 s.
const podLimit = 5 * time.Second

// GetPod returns a pod, or the API server's error.
type GetPod func(ctx context.Context, namespace, name string) (*corev1.Pod, error)

// findPods returns the pods for which claims are reserved if the decision depends on them; otherwise none. If
// they cannot be read the devices of each container are unknown: the kubelet retries after the error.
func findPods(
	ctx context.Context, get GetPod, state State, known []Claim, claims []*resourceapi.ResourceClaim,
) ([]*corev1.Pod, error) {
	if arePrepared(known, claims) || plain(claims) && !canBeApart(state, known, claims) {
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

// podsOf returns the pods for which a claim is reserved, to be recorded.
func podsOf(claim *resourceapi.ResourceClaim) (pods []Pod) {
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

// arePrepared reports whether claims need no decision.
func arePrepared(known []Claim, claims []*resourceapi.ResourceClaim) bool {
	for _, claim := range claims {
		if len(results(claim)) > 0 && !find(known, claim.UID).isOf(claim) {
			return false
		}
	}
	return true
}

// canBeApart reports whether a container of the claims' pods can have a GPU and a VF that were allocated
// separately: by the claims, or by a claim of the namespace that is prepared already, for which the kubelet
// does not call again.
func canBeApart(state State, known []Claim, claims []*resourceapi.ResourceClaim) bool {
	var found allocated
	for _, claim := range claims {
		for _, result := range results(claim) {
			device := state.Pool.Devices[result.Device]
			found.add(len(device.GPUs) > 0, len(device.VFs) > 0 &&
				(device.Type != pool.GPUVF || !asksForGPU(claim, result.Request)))
		}
	}
	if !found.separate {
		return false
	}
	for _, c := range known {
		for _, d := range c.Devices {
			if len(claims) > 0 && c.Namespace == claims[0].Namespace {
				found.add(len(d.GPUs) > 0, len(d.VFs) > 0)
			}
		}
	}
	return found.gpus && found.vfs
}

// allocated are the kinds of allocated devices.
type allocated struct {
	gpus, vfs bool
	separate  bool // a device is not a pair, which is on one switch always
}

func (a *allocated) add(gpu, vf bool) {
	a.gpus, a.vfs = a.gpus || gpu, a.vfs || vf
	a.separate = a.separate || gpu != vf
}

// conflict returns an error if a container of the pods gets contradictory environments: a container keeps one
// of several equal variables in CDI devices, and one of several mounts on a path. Claims that belong to one
// pod share an environment. Claims that other pods can use have environments of their own, so that they do
// not reveal this pod's devices.
func conflict(
	pods []*corev1.Pod, claims []*resourceapi.ResourceClaim, prepared []Claim,
	environments map[string]*environment,
) error {
	all := requests(claims)
	for _, pod := range pods {
		for _, c := range containers(pod) {
			seen, of := map[string]string{}, map[string]string{} // by setting: its value, and the claim that sets it
			for _, a := range slices.Concat(used(pod, &c, claims, all)...) {
				claim := find(prepared, a.claim)
				settings := settingsOf(environments[claim.group(a.request)])
				for _, key := range slices.Sorted(maps.Keys(settings)) {
					value := settings[key]
					if before, known := seen[key]; known && before != value {
						return fmt.Errorf("prepare %s: container %s of pod %s/%s uses %s too, and both set %s: ask for "+
							"all devices of a container in one claim, or in claims that are made from templates",
							claim, c.Name, pod.Namespace, pod.Name, of[key], key)
					}
					seen[key], of[key] = value, claim.String()
				}
			}
		}
	}
	return nil
}

// settingsOf returns the variables and mounts of an environment, nil for nil.
func settingsOf(e *environment) map[string]string {
	set := map[string]string{}
	if e == nil {
		return set
	}
	maps.Copy(set, e.edits.Env)
	for _, mount := range e.edits.Mounts {
		set["a mount on "+mount.Path] = mount.Host
	}
	return set
}
