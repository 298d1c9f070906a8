// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"cmp"
	"slices"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/plugins/dra/claims"
)

// maxRefused is the maximum number of recorded refusals.
const maxRefused = 64

// outcome is the result of preparing a claim.
type outcome struct {
	UID             types.UID
	Namespace, Name string
	Pods            []claims.Pod // for which the claim is reserved
	Asked           time.Time
	Took            time.Duration
	Refused         string // reason for a refusal; "" if prepared
}

// owners records the results of preparing claims, for people. It is in memory only: results of an earlier
// process come from the API server.
type owners struct {
	mu      sync.Mutex
	given   map[types.UID]outcome
	refused []outcome // oldest first, each claim once
}

func newOwners() *owners { return &owners{given: map[types.UID]outcome{}} }

// newOutcome returns the facts about a claim that is not prepared yet.
func newOutcome(claim *resourceapi.ResourceClaim) outcome {
	return outcome{UID: claim.UID, Namespace: claim.Namespace, Name: claim.Name, Pods: claims.PodsOf(claim)}
}

// asked records the result of preparing a claim.
func (o *owners) asked(claim *resourceapi.ResourceClaim, at time.Time, took time.Duration, err error) {
	one := newOutcome(claim)
	one.Asked, one.Took = at, took
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refused = slices.DeleteFunc(o.refused, func(other outcome) bool { return other.UID == claim.UID })
	if err == nil {
		o.given[claim.UID] = one
		return
	}
	one.Refused = err.Error()
	o.refused = append(o.refused, one)
	o.refused = o.refused[max(0, len(o.refused)-maxRefused):]
}

// forget removes an unprepared claim.
func (o *owners) forget(uid types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.given, uid)
	o.refused = slices.DeleteFunc(o.refused, func(other outcome) bool { return other.UID == uid })
}

// of returns the facts about a prepared claim, such as its pods.
func (o *owners) of(c claims.Claim) outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	known, ok := o.given[c.UID]
	if !ok {
		known = outcome{UID: c.UID, Namespace: c.Namespace, Name: c.Name, Pods: c.Pods}
	}
	return known
}

// refusals returns the last refused claims, the newest last.
func (o *owners) refusals() []outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.refused)
}

// learn records the present pods of a prepared claim: the kubelet does not call again for a further pod that
// shares the claim.
func (o *owners) learn(claim *resourceapi.ResourceClaim) {
	now := newOutcome(claim)
	o.mu.Lock()
	defer o.mu.Unlock()
	known := o.given[claim.UID]
	now.Asked, now.Took = known.Asked, known.Took
	o.given[claim.UID] = now
}

// owner returns the first pod of a claim by name, or "" if unknown.
func (o outcome) owner() string {
	if len(o.Pods) == 0 {
		return ""
	}
	return slices.MinFunc(o.Pods, func(a, b claims.Pod) int { return cmp.Compare(a.Name, b.Name) }).Name
}
