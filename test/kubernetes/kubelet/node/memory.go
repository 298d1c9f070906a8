// SPDX-License-Identifier: Apache-2.0

package node

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
)

// memory is the kubelet's static memory policy as a provider of hints, with the file memory_manager_state.
type memory struct {
	policy memorymanager.Policy
	state  state.State
}

// newMemory reserves the same amount of memory on every NUMA node with memory.
func newMemory(
	dir string, machine *cadvisorMachine, reserved uint64, store topologymanager.Store,
) (*memory, error) {
	system := map[int]map[v1.ResourceName]uint64{}
	for _, node := range machine.Topology {
		system[node.Id] = map[v1.ResourceName]uint64{v1.ResourceMemory: min(reserved, node.Memory)}
	}
	m := &memory{}
	var err error
	if m.policy, err = memorymanager.NewPolicyStatic(klog.Background(), machine, system, store); err != nil {
		return nil, err
	}
	if m.state, err = state.NewCheckpointState(klog.Background(), dir, "memory_manager_state",
		m.policy.Name()); err != nil {
		return nil, err
	}
	return m, m.policy.Start(klog.Background(), m.state)
}

// remove takes a container's memory back.
func (m *memory) remove(pod *v1.Pod, container string) {
	if m != nil {
		m.policy.RemoveContainer(klog.Background(), m.state, string(pod.UID), container)
	}
}
