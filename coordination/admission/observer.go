// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Answered is the event of an answered question, by the source of the request.
type Answered intent.Source

// Planned is the event of a plan for the rest of a container, for a number of resources.
type Planned int

// Verdict is the coordinator's answer to an Allocate, and its event.
type Verdict struct {
	Resource  string // "" if not announced
	Outcome   Outcome
	Container *kubelet.Container // nil if unknown
	PodUID    string             // "" without a request source
	Pairs     []placement.Pair   // of the container, if complete
	Refusal   string
}

// Outcome is the outcome of an Allocate.
type Outcome string

// The outcomes.
const (
	Granted       Outcome = "granted"        // the container has no pairs, or is incomplete
	Aligned       Outcome = "aligned"        // complete, each pair on a single switch
	Degraded      Outcome = "degraded"       // complete, some pairs not on a single switch
	RefusedDouble Outcome = "refused_double" // a different pod has a device
	// RefusedAlignment: the required alignment of pairs is impossible.
	RefusedAlignment Outcome = "refused_alignment"
)

// Outcomes are all outcomes.
var Outcomes = []Outcome{Granted, Aligned, Degraded, RefusedDouble, RefusedAlignment}

// PlanOutcome is the outcome of a plan for a resource, and the event of its end.
type PlanOutcome string

// The outcomes of a plan.
const (
	Kept      PlanOutcome = "kept"      // the kubelet allocated the planned devices
	Overruled PlanOutcome = "overruled" // the kubelet allocated different devices
	Dropped   PlanOutcome = "dropped"   // not requested by the container, or the container was refused
	Expired   PlanOutcome = "expired"   // no Allocate in time
)

// PlanOutcomes are all plan outcomes.
var PlanOutcomes = []PlanOutcome{Kept, Overruled, Dropped, Expired}

// Call is a kubelet call, and the event of its answer without the coordinator.
type Call string

// The calls answered by the coordinator.
const (
	PreferCall    Call = "prefer"
	AllocatedCall Call = "allocate"
)
