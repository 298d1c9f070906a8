// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
)

// requestKey identifies a request of a claim.
type requestKey struct {
	claim   types.UID
	request string
}

// groups assigns requests to groups of requests with the same containers: it maps a request to the first
// request of its group. If two containers use a request, and one of them also uses others, all these belong
// to one group: the environment of both containers contains the devices of the whole group.
type groups map[requestKey]requestKey

// nameGroup returns the name of the group of a request.
func (g groups) nameGroup(claim types.UID, request string) string {
	first := g.firstRequest(requestKey{claim, request})
	return string(first.claim) + "-" + first.request
}

func (g groups) firstRequest(a requestKey) requestKey {
	for g[a] != a && g[a] != (requestKey{}) {
		a = g[a]
	}
	return a
}

// joinRequests merges requests into one group, named after the first request of all.
func (g groups) joinRequests(requests []requestKey, all []requestKey) {
	for _, a := range requests[min(1, len(requests)):] {
		one, other := g.firstRequest(requests[0]), g.firstRequest(a)
		if slices.Index(all, one) > slices.Index(all, other) {
			one, other = other, one
		}
		g[other] = one
	}
}

// listRequests returns all requests for this driver, claim by claim.
func listRequests(claims []*resourceapi.ResourceClaim) []requestKey {
	sorted := slices.SortedFunc(slices.Values(claims), func(a, b *resourceapi.ResourceClaim) int {
		return strings.Compare(string(a.UID), string(b.UID))
	})
	var all []requestKey
	for _, claim := range sorted {
		for _, result := range driverResults(claim) {
			request, _, _ := strings.Cut(result.Request, "/")
			if a := (requestKey{claim.UID, request}); !slices.Contains(all, a) {
				all = append(all, a)
			}
		}
	}
	return all
}

// isPlain reports whether the groups are known without the pods: there is only one request, or all requests
// were created for the extended resources of one container.
func isPlain(claims []*resourceapi.ResourceClaim) bool {
	all := listRequests(claims)
	return len(all) < 2 || len(claims) == 1 && isExtended(claims[0]) &&
		!slices.ContainsFunc(all, func(a requestKey) bool {
			return containerOrdinal(a) == "" || containerOrdinal(a) != containerOrdinal(all[0])
		})
}

// groupRequests determines the groups of claims of some pods. If no container is known to use a claim for
// extended resources, each container of the claim has one group.
func groupRequests(claims []*resourceapi.ResourceClaim, pods []*corev1.Pod) groups {
	all := listRequests(claims)
	g := groups{}
	for _, a := range all {
		g[a] = a
	}
	found := map[types.UID]bool{}
	for _, pod := range pods {
		for _, c := range containersOf(pod) {
			for _, requests := range usedRequests(pod, &c, claims, all) {
				g.joinRequests(requests, all)
				for _, a := range requests {
					found[a.claim] = true
				}
			}
		}
	}
	for _, claim := range claims {
		if !found[claim.UID] && isExtended(claim) {
			g.joinByName(claim, all)
		}
	}
	return g
}

func containersOf(pod *corev1.Pod) []corev1.Container {
	return slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
}

// ofContainer matches the scheduler's names of requests for a container's extended resources
// (createRequestsAndMappings in pkg/scheduler/framework/plugins/dynamicresources).
var ofContainer = regexp.MustCompile(`^container-(\d+)-request-\d+$`)

func containerOrdinal(a requestKey) string {
	if match := ofContainer.FindStringSubmatch(a.request); match != nil {
		return match[1]
	}
	return ""
}

func isExtended(claim *resourceapi.ResourceClaim) bool {
	return claim.Annotations[resourceapi.ExtendedResourceClaimAnnotation] == "true"
}

// joinByName merges the requests for extended resources of one container.
func (g groups) joinByName(claim *resourceapi.ResourceClaim, all []requestKey) {
	byContainer := map[string][]requestKey{}
	for _, a := range all {
		if a.claim == claim.UID {
			byContainer[containerOrdinal(a)] = append(byContainer[containerOrdinal(a)], a)
		}
	}
	for _, requests := range byContainer {
		g.joinRequests(requests, all)
	}
}

// usedRequests returns the requests that a container uses: those of the pod's own claims in one set, and
// those of each shareable claim in a set of its own, because a shared claim must not expose devices of this
// pod to other pods.
func usedRequests(
	pod *corev1.Pod, c *corev1.Container, claims []*resourceapi.ResourceClaim, all []requestKey,
) (used [][]requestKey) {
	var own []requestKey
	for _, claim := range claims {
		var its []requestKey
		names := requestsOf(pod, c, claim.Name)
		for _, a := range all {
			if a.claim == claim.UID && (slices.Contains(names, a.request) || slices.Contains(names, "")) {
				its = append(its, a)
			}
		}
		if isOwn(pod, claim) {
			own = append(own, its...)
		} else {
			used = append(used, its)
		}
	}
	return append(used, own)
}

// Uses reports whether a pod uses a claim.
func Uses(pod *corev1.Pod, claim string) bool {
	made := pod.Status.ExtendedResourceClaimStatus
	return made != nil && made.ResourceClaimName == claim ||
		slices.ContainsFunc(pod.Spec.ResourceClaims, func(c corev1.PodResourceClaim) bool {
			name, _, err := resourceclaim.Name(pod, &c)
			return err == nil && name != nil && *name == claim
		})
}

// requestsOf returns the requests of a claim that a container uses; "" means all requests.
func requestsOf(pod *corev1.Pod, c *corev1.Container, claim string) (names []string) {
	for i := range pod.Spec.ResourceClaims {
		podClaim := &pod.Spec.ResourceClaims[i]
		name, _, err := resourceclaim.Name(pod, podClaim)
		if err != nil || name == nil || *name != claim {
			continue
		}
		for _, use := range c.Resources.Claims {
			if use.Name == podClaim.Name {
				names = append(names, use.Request)
			}
		}
	}
	if made := pod.Status.ExtendedResourceClaimStatus; made != nil && made.ResourceClaimName == claim {
		for _, mapping := range made.RequestMappings {
			if mapping.ContainerName == c.Name {
				names = append(names, mapping.RequestName)
			}
		}
	}
	return names
}

// isOwn reports whether a claim was created for a pod and is deleted with it.
func isOwn(pod *corev1.Pod, claim *resourceapi.ResourceClaim) bool {
	for _, owner := range claim.OwnerReferences {
		if owner.Kind == "Pod" && owner.UID == pod.UID {
			return true
		}
	}
	return false
}
