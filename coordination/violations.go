// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"cmp"
	"context"
	"fmt"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/degraded"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// violations are sentences about the containers that run with far pairs although near ones are required of
// their pods: they were admitted while no source of intent answered, or the coordinator did not. Without a
// source nobody can tell.
func (n *Node) violations(ctx context.Context, resources []*api.Resource) []string {
	far := degraded.Containers(resources)
	if len(far) == 0 {
		return nil
	}
	answer, ok := n.sources.Pods(ctx)
	if !ok {
		return nil
	}
	required := map[kubelet.Pod]bool{}
	for _, pod := range answer.Pods {
		required[pod.Pod] = cmp.Or(pod.Alignment, n.config.Intent.Policy.Alignment) == intent.Required
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
