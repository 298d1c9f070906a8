// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
)

// share reserves a claim for pods, each with these containers.
func (n *node) share(claim *claimOf, pods map[string][]string) {
	claim.Status.ReservedFor = nil
	for name, containers := range pods {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{
			Resource: "pods", Name: name, UID: types.UID("uid-" + name),
		})
		if containers == nil {
			continue // it has ended
		}
		pod := running(containers...)
		pod.Name, pod.UID = name, types.UID("uid-"+name)
		n.pods["team/"+name] = pod
	}
}

// devicesFor are the GPUs and VFs that a container finds which has a request.
func (n *node) devicesFor(claim *claimOf, request string) []string {
	c := n.prepared(claim.UID)
	var ids []string
	for _, asked := range c.Devices {
		for _, d := range inGroup([]Claim{c}, asked.Group) {
			if asked.requestName() == request {
				ids = append(ids, slices.Concat(d.GPUs, d.VFs)...)
			}
		}
	}
	return ids
}

// Two pods that share a claim get the devices of their own requests, and all where all of them use all.
func TestSharedClaim(t *testing.T) {
	for name, c := range map[string]struct {
		pods map[string][]string
		want int // devices of each request; 0 where it is refused
	}{
		"a request for each":        {map[string][]string{"a": {"shared/one"}, "b": {"shared/two"}}, 2},
		"all for both":              {map[string][]string{"a": {"shared"}, "b": {"shared"}}, 4},
		"one has ended":             {map[string][]string{"a": {"shared/one", "shared/two"}, "b": nil}, 2},
		"one alone, and all":        {map[string][]string{"a": {"shared/one"}, "b": {"shared"}}, 0},
		"reserved for nobody known": {map[string][]string{"b": nil}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "oci-mi300x-derived", 4, toldVFs, true)
			claim := n.need("shared", want{"one", pool.TypePair, 1}, want{"two", pool.TypePair, 1})
			n.share(claim, c.pods)
			if c.want == 0 {
				n.refused(claim, "prepare claim team/shared", "request")
				return
			}
			n.ready(claim)
			n.check(claim)
			for _, request := range []string{"one", "two"} {
				if got := n.devicesFor(claim, request); len(got) != c.want {
					t.Errorf("a container with request %s has %v", request, got)
				}
			}
		})
	}
}

// TestSharedClaimOfLaterPod: a later pod that uses one request of a prepared claim alone, beside a claim of
// its own, is rejected: it would get the devices of all requests.
func TestSharedClaimOfLaterPod(t *testing.T) {
	for later, refused := range map[string]bool{"shared/one own": true, "shared own": false} {
		n := newNode(t, "oci-mi300x-derived", 4, plainVFs, true)
		shared := n.need("shared", want{"one", pool.TypeGPU, 1}, want{"two", pool.TypeGPU, 1})
		own := n.need("own", want{"x", pool.TypeVF, 1})
		n.share(shared, map[string][]string{"a": {"shared"}})
		n.ready(shared)
		n.share(own, map[string][]string{"b": {later}})
		err := n.Prepare(t.Context(), n.state, list(own))[own.UID].Err
		if got := err != nil && strings.Contains(err.Error(), "claim team/shared: pods share it"); got != refused {
			t.Errorf("%s: %v", later, err)
		}
	}
}

// While it is not known which container has which request no container gets anything, and the kubelet asks
// again.
func TestPodCannotBeFound(t *testing.T) {
	n := newNode(t, "oci-mi300x-derived", 4, toldVFs, true)
	claim := n.need("two", want{"one", pool.TypePair, 1}, want{"more", pool.TypePair, 1})
	n.pods["team/pod"] = running("two/one", "two/more")
	n.lost = errors.New("the API server is away")
	n.refused(claim, "the API server is away")
	n.lost = nil
	claim.Status.ReservedFor[0].Name = "gone"
	n.refused(claim, "it is reserved for no pod that exists")
	claim.Status.ReservedFor[0].Name = "pod"
	n.ready(claim)
	n.check(claim)
	if got := n.devicesFor(claim, "one"); len(got) != 2 {
		t.Errorf("a container with request one has %v", got)
	}
}

// A container gets one whole environment, or its pod is refused: not two CDI devices with the same variables.
func TestTwoEnvironments(t *testing.T) {
	for name, c := range map[string]struct {
		own        bool // the claims are made for the pod
		before     bool // the first claim is prepared before, for a container that uses it alone
		containers []string
		second     pool.Type
		want       string // of the refusal
	}{
		"of one container": {false, false, []string{"a b"}, pool.TypePair,
			"container a of pod team/pod uses claim team/a too, and both set NCCL_IB_HCA"},
		"one is prepared":             {false, true, []string{"a b"}, pool.TypeVF, "both set NCCL_IB_HCA"},
		"made for the pod":            {true, false, []string{"a b"}, pool.TypePair, ""},
		"of two containers":           {false, false, []string{"a", "b"}, pool.TypePair, ""},
		"nothing that both could set": {false, false, []string{"a b"}, pool.TypeGPU, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "oci-mi300x-derived", 4, toldVFs, true)
			claims := list(n.need("a", want{"x", pool.TypeVF, 1}), n.need("b", want{"y", c.second, 1}))
			for _, claim := range claims {
				if c.own {
					claim.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", UID: "pod"}}
				}
			}
			var left []*claimOf
			if c.before {
				n.pods["team/pod"] = running("a")
				n.ready(claims[0])
				left, claims = claims[:1], claims[1:]
			}
			n.pods["team/pod"] = running(c.containers...)
			if c.want == "" {
				n.ready(claims...)
				n.check(claims...)
				return
			}
			for uid, answer := range n.Prepare(t.Context(), n.state, claims) {
				if answer.Err == nil || !strings.Contains(answer.Err.Error(), c.want) {
					t.Errorf("%s: error %v", uid, answer.Err)
				}
			}
			n.check(left...)
		})
	}
}
