// SPDX-License-Identifier: Apache-2.0

package model

import (
	"maps"
	"time"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
)

// Describe returns the pod in the form of a source of requests.
func (p *Pod) Describe() intent.Pod {
	pod := intent.Pod{
		Pod: p.Pod, UID: p.UID, Created: p.created.Truncate(time.Second), Started: p.started,
		Alignment: p.Alignment,
	}
	for _, c := range p.Containers {
		pod.Containers = append(pod.Containers,
			intent.Container{Name: c.Name, Role: model.Role(c.Role), Requests: maps.Clone(c.Requests)})
	}
	return pod
}
