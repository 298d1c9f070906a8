// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"sync/atomic"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/intent"
)

// observer counts the kubelet's calls that a plugin answered without the coordinator.
type observer struct{ alone atomic.Int64 }

// QuestionAnswered does nothing.
func (*observer) QuestionAnswered(intent.Source) {}

// Planned does nothing.
func (*observer) Planned(int) {}

// PlanEnded does nothing.
func (*observer) PlanEnded(admission.PlanOutcome) {}

// Allocated does nothing.
func (*observer) Allocated(admission.Verdict) {}

// Alone counts a call.
func (o *observer) Alone(admission.Call) { o.alone.Add(1) }
