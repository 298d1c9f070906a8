// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"cmp"
	"slices"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/dra/claims"
)

// maxRefused is how many refused prepares are remembered.
const maxRefused = 64

// outcome is what became of preparing a claim.
type outcome struct {
	UID             types.UID
	Namespace, Name string
	Pods            []string    // that the claim is reserved for, by name
	PodUIDs         []types.UID // of these
	Asked           time.Time
	Took            time.Duration
	Refused         string // why it was not prepared; "" where it was
}

// owners know what became of claims, for people. It is memory alone: what was before this process is asked of
// the API server.
type owners struct {
	mu      sync.Mutex
	given   map[types.UID]outcome
	refused []outcome // the oldest first, each claim once
}

func newOwners() *owners { return &owners{given: map[types.UID]outcome{}} }

// newOutcome is what is known of a claim before it was asked for.
func newOutcome(claim *resourceapi.ResourceClaim) outcome {
	o := outcome{UID: claim.UID, Namespace: claim.Namespace, Name: claim.Name}
	for _, reserved := range claim.Status.ReservedFor {
		if reserved.APIGroup == "" && reserved.Resource == "pods" {
			o.Pods, o.PodUIDs = append(o.Pods, reserved.Name), append(o.PodUIDs, reserved.UID)
		}
	}
	return o
}

// asked notes that a claim was to be prepared.
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

// forget notes that a claim was taken back.
func (o *owners) forget(uid types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.given, uid)
	o.refused = slices.DeleteFunc(o.refused, func(other outcome) bool { return other.UID == uid })
}

// of is what is known of a prepared claim, its pods above all.
func (o *owners) of(c claims.Claim) outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	known, ok := o.given[c.UID]
	if !ok {
		known = outcome{UID: c.UID, Namespace: c.Namespace, Name: c.Name}
	}
	return known
}

// refusals are the claims that were refused last, the newest last.
func (o *owners) refusals() []outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.refused)
}

// learn notes for which pods a claim was prepared before this process was there.
func (o *owners) learn(claim *resourceapi.ResourceClaim) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if known := o.given[claim.UID]; known.Asked.IsZero() {
		o.given[claim.UID] = newOutcome(claim)
	}
}

// owner is the pod of a claim, as far as it is known: the first by name of several.
func (o outcome) owner() string {
	if len(o.Pods) == 0 {
		return ""
	}
	return slices.MinFunc(o.Pods, cmp.Compare)
}
