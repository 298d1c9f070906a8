// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
)

// asking is a claim with these requests, written "name owner request…"; the owner is "pod", "-" for a claim
// that pods share, or "extended".
func asking(text string) *claimOf {
	fields := strings.Fields(text)
	claim := &claimOf{}
	claim.Namespace, claim.Name, claim.UID = "team", fields[0], types.UID(fields[0])
	if fields[1] != "-" {
		claim.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", UID: "pod"}}
	}
	if fields[1] == "extended" {
		claim.Annotations = map[string]string{resourceapi.ExtendedResourceClaimAnnotation: "true"}
	}
	claim.Status.Allocation = &resourceapi.AllocationResult{}
	for _, request := range fields[2:] {
		claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results,
			resourceapi.DeviceRequestAllocationResult{Request: request, Driver: pool.Driver, Device: "gpu"},
			resourceapi.DeviceRequestAllocationResult{Request: "other", Driver: "example.com", Device: "gpu"})
	}
	return claim
}

// running is a pod with these containers, written "claim/request claim …", of an extended claim
// "extended/container-0-request-0".
func running(containers ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "pod", UID: "pod"}}
	for i, text := range containers {
		c := corev1.Container{Name: string(rune('a' + i))}
		for use := range strings.FieldsSeq(text) {
			claim, request, _ := strings.Cut(use, "/")
			if claim == "extended" {
				if pod.Status.ExtendedResourceClaimStatus == nil {
					pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: claim}
				}
				status := pod.Status.ExtendedResourceClaimStatus
				status.RequestMappings = append(status.RequestMappings,
					corev1.ContainerExtendedResourceRequest{ContainerName: c.Name, RequestName: request})
				continue
			}
			c.Resources.Claims = append(c.Resources.Claims, corev1.ResourceClaim{Name: claim, Request: request})
			known := func(p corev1.PodResourceClaim) bool { return p.Name == claim }
			if !slices.ContainsFunc(pod.Spec.ResourceClaims, known) {
				pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims,
					corev1.PodResourceClaim{Name: claim, ResourceClaimName: &claim})
			}
		}
		if i == 0 && len(containers) > 2 { // one that runs first
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		} else {
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
	}
	return pod
}

// Requests that one container has are one group, and no others.
func TestGroups(t *testing.T) {
	for _, c := range []struct {
		name   string
		claims []string
		pods   [][]string // the containers of each; nil where the pods are not known
		plain  bool       // known without the pod
		want   string     // the groups, each in brackets
	}{
		{"one request", []string{"a pod x"}, nil, true, "[a/x]"},
		{"of several alternatives", []string{"a pod x/near x/any"}, nil, true, "[a/x]"},
		{"two requests that nobody uses", []string{"a pod x y"}, nil, false, "[a/x] [a/y]"},
		{"two claims, nobody knows of whom", []string{"a pod x", "b pod x"}, nil, false, "[a/x] [b/x]"},
		{"a container for each", []string{"a pod x y"}, [][]string{{"a/x", "a/y"}}, false, "[a/x] [a/y]"},
		{"a container for both", []string{"a pod x y"}, [][]string{{"a/x a/y", ""}}, false, "[a/x a/y]"},
		{"a container for the claim", []string{"a pod x y z"}, [][]string{{"a"}}, false, "[a/x a/y a/z]"},
		{"one container has both, another one", []string{"a pod x y"}, [][]string{{"a/y", "a"}}, false,
			"[a/x a/y]"},
		{"two claims of the pod", []string{"b pod y", "a pod x"}, [][]string{{"a b"}}, false, "[a/x b/y]"},
		{"one of them is shared", []string{"a - x y", "b pod y"}, [][]string{{"a b"}}, false, "[a/x a/y] [b/y]"},
		{"a chain", []string{"a pod x y", "b pod x y"}, [][]string{{"b/y a/x", "a/y b/x", "a/y b/y"}}, false,
			"[a/x a/y b/x b/y]"},
		{"extended, one container", []string{"e extended container-3-request-0 container-3-request-1"}, nil, true,
			"[e/container-3-request-0 e/container-3-request-1]"},
		{"extended, two containers",
			[]string{"e extended container-0-request-0 container-0-request-1 container-10-request-0"}, nil, false,
			"[e/container-0-request-0 e/container-0-request-1] [e/container-10-request-0]"},
		{"extended, the second takes over from the first",
			[]string{"extended extended container-0-request-0 container-1-request-1"},
			[][]string{{
				"extended/container-0-request-0", "extended/container-0-request-0 extended/container-1-request-1",
			}},
			false, "[extended/container-0-request-0 extended/container-1-request-1]"},
		{"extended, and a claim", []string{"a pod x", "extended extended container-0-request-0"},
			[][]string{{"a extended/container-0-request-0"}}, false, "[a/x extended/container-0-request-0]"},
		{"extended, and the pod does not say of which container",
			[]string{"e extended container-0-request-0 container-0-request-1 container-1-request-0"},
			[][]string{{"", ""}}, false,
			"[e/container-0-request-0 e/container-0-request-1] [e/container-1-request-0]"},
		{"not ours", []string{"a pod"}, nil, true, ""},
		// pods that share a claim
		{"a request for each pod", []string{"a - x y"}, [][]string{{"a/x"}, {"a/y"}}, false, "[a/x] [a/y]"},
		{"both use all", []string{"a - x y"}, [][]string{{"a"}, {"a/x a/y"}}, false, "[a/x a/y]"},
		{"two containers of each", []string{"a - x y"}, [][]string{{"a/x", "a/y"}, {"a/x", "a/y"}}, false,
			"[a/x] [a/y]"},
		{"one does not use it", []string{"a - x y"}, [][]string{{""}, {"a"}}, false, "[a/x a/y]"},
		{"one has both, another has one", []string{"a - x y"}, [][]string{{"a"}, {"a/x"}}, false, // rejected
			"[a/x a/y]"},
		{"in containers of its own", []string{"a - x y z"}, [][]string{{"a/x a/y", "a/z"}, {"a/x", "a/y"}}, false,
			"[a/x a/y] [a/z]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var claims []*claimOf
			for _, text := range c.claims {
				claims = append(claims, asking(text))
			}
			if got := isPlain(claims); got != c.plain {
				t.Errorf("plain: %v", got)
			}
			var got []string
			var pods []*corev1.Pod
			for _, containers := range c.pods {
				pods = append(pods, running(containers...))
			}
			for range 2 {
				got = written(groupRequests(claims, pods), listRequests(claims))
				slices.Reverse(claims)
				if text := strings.Join(got, " "); text != c.want {
					t.Errorf("groups %s, want %s", text, c.want)
				}
			}
		})
	}
}

// written writes groups, each in the order of all requests.
func written(g groups, all []requestKey) (list []string) {
	byGroup := map[string][]string{}
	var order []string
	for _, a := range all {
		name := g.nameGroup(a.claim, a.request)
		if byGroup[name] == nil {
			order = append(order, name)
		}
		byGroup[name] = append(byGroup[name], string(a.claim)+"/"+a.request)
	}
	for _, name := range order {
		list = append(list, "["+strings.Join(byGroup[name], " ")+"]")
	}
	return list
}

// The pods of claims are all that any of them is reserved for.
func TestConsumers(t *testing.T) {
	type reference = resourceapi.ResourceClaimConsumerReference
	pod := func(name string) reference {
		return reference{Resource: "pods", Name: name, UID: types.UID(name)}
	}
	group := reference{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "a"}
	for name, c := range map[string]struct {
		reserved [][]reference
		want     string
	}{
		"one":                    {[][]reference{{pod("a")}}, "a"},
		"one claim is shared":    {[][]reference{{pod("b"), pod("a")}, {pod("a")}}, "b a"},
		"all are shared":         {[][]reference{{pod("b"), pod("a")}}, "b a"},
		"for a group of pods":    {[][]reference{{group}}, ""},
		"reserved for nobody":    {[][]reference{nil}, ""},
		"a group beside the pod": {[][]reference{{group, pod("a")}}, "a"},
	} {
		var claims []*claimOf
		for _, reserved := range c.reserved {
			claims = append(claims, &claimOf{Status: resourceapi.ResourceClaimStatus{ReservedFor: reserved}})
		}
		var got []string
		for _, reserved := range PodsOf(claims...) {
			got = append(got, reserved.Name)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
