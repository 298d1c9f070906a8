// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	server "k8s.io/kubernetes/pkg/kubelet/apis/podresources"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/utils/cpuset"
)

// cpus is the kubelet's static CPU policy as a provider of hints, with the file cpu_manager_state. It lacks
// the manager's periodic updates of the container runtime, as the node has no runtime.
type cpus struct {
	policy cpumanager.Policy
	state  state.State
}

func newCPUs(dir string, machine *cadvisorMachine, o Options, store topologymanager.Store) (*cpus, error) {
	reserved, err := cpuset.Parse(o.ReservedCPUs)
	if err != nil {
		return nil, err
	}
	found, err := topology.Discover(klog.Background(), machine)
	if err != nil {
		return nil, err
	}
	c := &cpus{}
	if c.policy, err = cpumanager.NewStaticPolicy(klog.Background(), found, reserved.Size(), reserved, store,
		o.CPUOptions); err != nil {
		return nil, err
	}
	if c.state, err = state.NewCheckpointState(klog.Background(), dir, "cpu_manager_state", c.policy.Name(),
		containermap.NewContainerMap()); err != nil {
		return nil, err
	}
	return c, c.policy.Start(klog.Background(), c.state)
}

// remove takes a container's CPUs back.
func (c *cpus) remove(pod *v1.Pod, container string) error {
	if c == nil {
		return nil
	}
	if err := c.policy.RemoveContainer(klog.Background(), c.state, string(pod.UID), container); err != nil {
		return fmt.Errorf("take back the CPUs of container %s: %w", container, err)
	}
	return nil
}

// cpuProvider returns the provider of CPUs for PodResources.
func (n *Node) cpuProvider() server.CPUsProvider {
	if n.cpus == nil {
		return nothing{}
	}
	return n.cpus
}

// GetAllocatableCPUs corresponds to the method of Manager in pkg/kubelet/cm/cpumanager.
func (c *cpus) GetAllocatableCPUs() []int64 {
	return numbers(c.policy.GetAllocatableCPUs(c.state))
}

// AllocatableCPUs returns the CPUs that can be exclusive, assigned or not; none under the policy none.
func (n *Node) AllocatableCPUs() []int64 { return n.cpuProvider().GetAllocatableCPUs() }

// ExclusiveCPUs returns the exclusive CPUs of a container of an admitted pod.
func (n *Node) ExclusiveCPUs(pod *v1.Pod, container string) []int64 {
	return n.cpus.exclusive(string(pod.UID), container)
}

// exclusive corresponds to Manager.GetExclusiveCPUs.
func (c *cpus) exclusive(podUID, container string) []int64 {
	if c == nil {
		return nil
	}
	set, _ := c.state.GetCPUSet(podUID, container)
	return numbers(set)
}

func numbers(set cpuset.CPUSet) []int64 {
	var all []int64
	for _, cpu := range set.List() {
		all = append(all, int64(cpu))
	}
	return all
}
