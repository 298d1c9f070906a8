// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/degraded"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// remarks are the parts of the status from outside the coordinator, for people.
type remarks struct {
	config  *Config
	sources *intent.Sources
}

// notes returns the publisher's notes, the reason for withholding all devices, and the violations.
func (r remarks) notes(ctx context.Context, resources []*api.Resource) []string {
	var notes []string
	if r.config.Publisher != nil {
		notes = r.config.Publisher.Notes()
	}
	if r.config.Withheld != nil {
		if holders, _ := r.config.Withheld.Latest(); holders[Every] != "" {
			notes = append(notes, "all devices are withheld: "+holders[Every])
		}
	}
	return slices.Concat(notes, r.violations(ctx, resources))
}

// violations returns sentences about running containers with far pairs of pods with alignment "required": the
// containers were admitted without an answer of a request source or of the coordinator. Without a source the
// violations are unknown.
func (r remarks) violations(ctx context.Context, resources []*api.Resource) []string {
	far := degraded.Containers(resources)
	if len(far) == 0 {
		return nil
	}
	answer, ok := r.sources.Pods(ctx)
	if !ok {
		return nil
	}
	required := map[kubelet.Pod]bool{}
	for _, pod := range answer.Pods {
		required[pod.Pod] = cmp.Or(pod.Alignment, r.config.Intent.Policy.Alignment) == intent.Required
	}
	var notes []string
	for _, c := range far {
		if owner := c.Owner; required[kubelet.Pod{Namespace: owner.GetNamespace(), Name: owner.GetPod()}] {
			notes = append(notes, fmt.Sprintf("container %s/%s/%s runs with far pairs although alignment is "+
				"required: it was admitted while nobody could tell; delete the pod to have it decided anew",
				owner.GetNamespace(), owner.GetPod(), owner.GetContainer()))
		}
	}
	return notes
}

// alignment returns the node's alignment and the enforcement of annotations.
func (r remarks) alignment() *api.Alignment {
	now, _ := r.sources.Enforcement()
	return &api.Alignment{
		Policy:      string(cmp.Or(r.config.Intent.Policy.Alignment, intent.Preferred)),
		Annotations: now.Enforced(), Source: string(now.Source), Why: now.Why,
	}
}
