// SPDX-License-Identifier: Apache-2.0

//go:build !kubernetes136

package managers

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

// GetAffinity returns the Topology Manager's decision for the container.
func (s *store) GetAffinity(klog.Logger, string, string) topologymanager.TopologyHint { return s.hint }

// hints returns the hints of both managers, in the kubelet's order.
func (l *liveManagers) hints(pod *v1.Pod, c *v1.Container) []map[string][]topologymanager.TopologyHint {
	const add = lifecycle.AddOperation
	var all []map[string][]topologymanager.TopologyHint
	if p := l.policies.cpus; p != nil && c == nil {
		all = append(all, p.GetPodTopologyHints(quiet, l.cpus, pod, add))
	} else if p != nil {
		all = append(all, p.GetTopologyHints(quiet, l.cpus, pod, c, add))
	}
	if p := l.policies.memory; p != nil && c == nil {
		all = append(all, p.GetPodTopologyHints(quiet, l.memory, pod, add))
	} else if p != nil {
		all = append(all, p.GetTopologyHints(quiet, l.memory, pod, c, add))
	}
	return all
}

func (l *liveManagers) allocate(pod *v1.Pod, c *v1.Container) error {
	const add = lifecycle.AddOperation
	if p := l.policies.cpus; p != nil {
		if err := p.Allocate(quiet, l.cpus, pod, c, add); err != nil {
			return err
		}
	}
	if p := l.policies.memory; p != nil {
		return p.Allocate(klog.NewContext(context.Background(), quiet), l.memory, pod, c, add)
	}
	return nil
}
