package claims

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
)

// asked is a request of a claim.
type asked struct {
	claim   types.UID
	request string
}

// groups say which requests go to the same containers: by request, the first of its group. A request that two
// containers have, and one of them with others, is of one group with those: all that the two have is in the
// environment of both.
type groups map[asked]asked

// of names the group of a request.
func (g groups) of(claim types.UID, request string) string {
	first := g.first(asked{claim, request})
	return string(first.claim) + "-" + first.request
}

func (g groups) first(a asked) asked {
	for g[a] != a && g[a] != (asked{}) {
		a = g[a]
	}
	return a
}

// join has requests be of one group, that of the first of them all.
func (g groups) join(requests []asked, all []asked) {
	for _, a := range requests[min(1, len(requests)):] {
		one, other := g.first(requests[0]), g.first(a)
		if slices.Index(all, one) > slices.Index(all, other) {
			one, other = other, one
		}
		g[other] = one
	}
}

// requests are all that this driver has to do with, those of one claim after those of another.
func requests(claims []*resourceapi.ResourceClaim) []asked {
	sorted := slices.SortedFunc(slices.Values(claims), func(a, b *resourceapi.ResourceClaim) int {
		return strings.Compare(string(a.UID), string(b.UID))
	})
	var all []asked
	for _, claim := range sorted {
		for _, result := range results(claim) {
			request, _, _ := strings.Cut(result.Request, "/")
			if a := (asked{claim.UID, request}); !slices.Contains(all, a) {
				all = append(all, a)
			}
		}
	}
	return all
}

// plain reports whether it is known without their pod which requests go together: there is one, or they are
// those of one container, made for extended resources.
func plain(claims []*resourceapi.ResourceClaim) bool {
	all := requests(claims)
	return len(all) < 2 || len(claims) == 1 && isExtended(claims[0]) &&
		!slices.ContainsFunc(all, func(a asked) bool { return ordinal(a) == "" || ordinal(a) != ordinal(all[0]) })
}

// group finds the groups of claims that some pods have. Where none of their containers is known to use a
// claim that was made for extended resources its requests are one group for each container. It is an error
// where a container of one pod would get what only other pods ask for.
func group(claims []*resourceapi.ResourceClaim, pods []*corev1.Pod) (groups, error) {
	all := requests(claims)
	g := groups{}
	for _, a := range all {
		g[a] = a
	}
	found := map[types.UID]bool{}
	for _, pod := range pods {
		for _, c := range containers(pod) {
			for _, requests := range used(pod, &c, claims, all) {
				g.join(requests, all)
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
	if len(pods) < 2 {
		return g, nil
	}
	return g, g.apart(claims, pods, all)
}

// apart is an error where one pod uses requests of a claim together, and another one some of them.
func (g groups) apart(claims []*resourceapi.ResourceClaim, pods []*corev1.Pod, all []asked) error {
	for _, pod := range pods {
		uses := map[asked]bool{}
		for _, c := range containers(pod) {
			for _, a := range slices.Concat(used(pod, &c, claims, all)...) {
				uses[a] = true
			}
		}
		for a := range uses {
			for _, b := range all {
				if !uses[b] && g.first(a) == g.first(b) {
					return fmt.Errorf("prepare claim %s: pods share it, and pod %s/%s uses request %s without request %s, "+
						"which a container of another pod uses together with it: it would get the devices of both; use the "+
						"same requests in all pods, or a claim for each", nameOf(claims, a.claim), pod.Namespace, pod.Name,
						a.request, b.request)
				}
			}
		}
	}
	return nil
}

func nameOf(claims []*resourceapi.ResourceClaim, uid types.UID) string {
	for _, claim := range claims {
		if claim.UID == uid {
			return claim.Namespace + "/" + claim.Name
		}
	}
	return string(uid)
}

func containers(pod *corev1.Pod) []corev1.Container {
	return slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
}

// ofContainer is how the scheduler names the requests that it makes of a container's extended resources
// (createRequestsAndMappings in pkg/scheduler/framework/plugins/dynamicresources).
var ofContainer = regexp.MustCompile(`^container-(\d+)-request-\d+$`)

func ordinal(a asked) string {
	if match := ofContainer.FindStringSubmatch(a.request); match != nil {
		return match[1]
	}
	return ""
}

func isExtended(claim *resourceapi.ResourceClaim) bool {
	return claim.Annotations[resourceapi.ExtendedResourceClaimAnnotation] == "true"
}

// joinByName joins the requests of extended resources that are those of one container.
func (g groups) joinByName(claim *resourceapi.ResourceClaim, all []asked) {
	byContainer := map[string][]asked{}
	for _, a := range all {
		if a.claim == claim.UID {
			byContainer[ordinal(a)] = append(byContainer[ordinal(a)], a)
		}
	}
	for _, requests := range byContainer {
		g.join(requests, all)
	}
}

// used are the requests that a container uses: of claims that are the pod's own all together, and those of
// each claim that other pods can have too, which must not show a container what is this pod's alone.
func used(
	pod *corev1.Pod, c *corev1.Container, claims []*resourceapi.ResourceClaim, all []asked,
) (used [][]asked) {
	var own []asked
	for _, claim := range claims {
		var its []asked
		names := requestsOf(pod, c, claim)
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

// requestsOf names the requests of a claim that a container uses; "" stands for all.
func requestsOf(pod *corev1.Pod, c *corev1.Container, claim *resourceapi.ResourceClaim) (names []string) {
	for i := range pod.Spec.ResourceClaims {
		podClaim := &pod.Spec.ResourceClaims[i]
		name, _, err := resourceclaim.Name(pod, podClaim)
		if err != nil || name == nil || *name != claim.Name {
			continue
		}
		for _, use := range c.Resources.Claims {
			if use.Name == podClaim.Name {
				names = append(names, use.Request)
			}
		}
	}
	if made := pod.Status.ExtendedResourceClaimStatus; made != nil && made.ResourceClaimName == claim.Name {
		for _, mapping := range made.RequestMappings {
			if mapping.ContainerName == c.Name {
				names = append(names, mapping.RequestName)
			}
		}
	}
	return names
}

// isOwn reports whether a claim was made for a pod, and goes with it.
func isOwn(pod *corev1.Pod, claim *resourceapi.ResourceClaim) bool {
	for _, owner := range claim.OwnerReferences {
		if owner.Kind == "Pod" && owner.UID == pod.UID {
			return true
		}
	}
	return false
}
