// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"fmt"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/intent"
)

// Alignment says whether containers are refused whose pairs are not all on one switch.
type Alignment struct {
	Policy      string `json:"policy"`           // of pods without annotation: "preferred" or "required"
	Annotations bool   `json:"annotations"`      // tandem.dev/alignment of pods is enforced
	Source      string `json:"source,omitempty"` // that reads it
	Why         string `json:"why,omitempty"`    // it is not enforced
}

func alignmentOf(answer *api.StatusResponse) *Alignment {
	a := answer.GetAlignment()
	if a == nil {
		return nil
	}
	return &Alignment{a.GetPolicy(), a.GetAnnotations(), a.GetSource(), a.GetWhy()}
}

// Unenforced says that the annotation of pods is not enforced, and why; "" where it is, or nobody tells.
func (a *Alignment) Unenforced() string {
	if a == nil || a.Annotations {
		return ""
	}
	return fmt.Sprintf("annotation %s of pods is not enforced on this node: %s", intent.AlignmentKey, a.Why)
}
