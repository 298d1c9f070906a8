// SPDX-License-Identifier: Apache-2.0

//go:build kubernetes136

package managers

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
)

// GetAffinity returns the Topology Manager's decision for the container.
func (s *store) GetAffinity(string, string) topologymanager.TopologyHint { return s.hint }

// hints returns the hints of both managers, in the kubelet's order.
func (l *liveManagers) hints(pod *v1.Pod, c *v1.Container) []map[string][]topologymanager.TopologyHint {
	var all []map[string][]topologymanager.TopologyHint
	if p := l.policies.cpus; p != nil && c == nil {
		all = append(all, p.GetPodTopologyHints(quiet, l.cpus, pod))
	} else if p != nil {
		all = append(all, p.GetTopologyHints(quiet, l.cpus, pod, c))
	}
	if p := l.policies.memory; p != nil && c == nil {
		all = append(all, p.GetPodTopologyHints(quiet, l.memory, pod))
	} else if p != nil {
		all = append(all, p.GetTopologyHints(quiet, l.memory, pod, c))
	}
	return all
}

func (l *liveManagers) allocate(pod *v1.Pod, c *v1.Container) error {
	if p := l.policies.cpus; p != nil {
		if err := p.Allocate(quiet, l.cpus, pod, c); err != nil {
			return err
		}
	}
	if p := l.policies.memory; p != nil {
		return p.Allocate(quiet, l.memory, pod, c)
	}
	return nil
}
