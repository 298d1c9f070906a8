// SPDX-License-Identifier: Apache-2.0

//go:build kubernetes136

package node

import (
	_ "unsafe" // for go:linkname

	cadvisor "github.com/google/cadvisor/info/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubernetes/pkg/kubelet/allocation"
	podsapi "k8s.io/kubernetes/pkg/kubelet/apis/pods"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/config"
)

// Version is the version of the node's kubelet managers. The files kubelet136.go and kubelet137.go have all
// differences between the two.
const Version = "1.36"

type (
	cadvisorMachine   = cadvisor.MachineInfo
	cadvisorNode      = cadvisor.Node
	cadvisorCore      = cadvisor.Core
	cadvisorHugePages = cadvisor.HugePagesInfo
)

// newDeviceManager is devicemanager.NewManagerImpl with a socket path of our own: the exported function
// always takes /var/lib/kubelet. The file linkname.s beside this one lets the compiler accept a function
// without a body.
//
//go:linkname newDeviceManager k8s.io/kubernetes/pkg/kubelet/cm/devicemanager.newManagerImpl
func newDeviceManager(
	log klog.Logger, socket string, machine []cadvisorNode, store topologymanager.Store,
) (*devicemanager.ManagerImpl, error)

func newTopologyManager(machine []cadvisorNode, o Options) (topologymanager.Manager, error) {
	return topologymanager.NewManager(machine, o.Policy, o.Scope, o.policyOptions())
}

func newAllocation(pods *pods, sources config.SourcesReady) allocation.Manager {
	return allocation.NewInMemoryManager(nil, nil, pods.GetActivePods, pods.byUID, sources, nil)
}

func newPodsServer(pods *pods, _ config.SourcesReady) *podsapi.PodsServer {
	return podsapi.NewPodsServer(nil, podManager{pods: pods}, pods)
}

func (n *Node) addPod(others []*v1.Pod, pod *v1.Pod) (ok bool, reason, message string) {
	return n.allocation.AddPod(others, pod)
}

func (n *Node) removePod(pod *v1.Pod) { n.allocation.RemovePod(pod.UID) }

func (n *Node) addContainer(pod *v1.Pod, c *v1.Container, id string) {
	n.topology.AddContainer(pod, c, id)
}

func (n *Node) removeContainer(id string) error { return n.topology.RemoveContainer(id) }

func (n *Node) affinity(pod *v1.Pod, container string) topologymanager.TopologyHint {
	return n.topology.GetAffinity(string(pod.UID), container)
}

func (n *Node) allocatable() v1.ResourceList {
	_, allocatable, _ := n.devices.GetCapacity()
	return allocatable
}

func (n *Node) healthy() devicemanager.ResourceDeviceInstances {
	return n.devices.GetAllocatableDevices()
}

func (c *cpus) GetTopologyHints(
	pod *v1.Pod, container *v1.Container,
) map[string][]topologymanager.TopologyHint {
	return c.policy.GetTopologyHints(klog.Background(), c.state, pod, container)
}

func (c *cpus) GetPodTopologyHints(pod *v1.Pod) map[string][]topologymanager.TopologyHint {
	return c.policy.GetPodTopologyHints(klog.Background(), c.state, pod)
}

func (c *cpus) AllocatePod(pod *v1.Pod) error {
	return c.policy.AllocatePod(klog.Background(), c.state, pod)
}

func (c *cpus) Allocate(pod *v1.Pod, container *v1.Container) error {
	return c.policy.Allocate(klog.Background(), c.state, pod, container)
}

func (m *memory) GetTopologyHints(
	pod *v1.Pod, container *v1.Container,
) map[string][]topologymanager.TopologyHint {
	return m.policy.GetTopologyHints(klog.Background(), m.state, pod, container)
}

func (m *memory) GetPodTopologyHints(pod *v1.Pod) map[string][]topologymanager.TopologyHint {
	return m.policy.GetPodTopologyHints(klog.Background(), m.state, pod)
}

func (m *memory) AllocatePod(pod *v1.Pod) error {
	return m.policy.AllocatePod(klog.Background(), m.state, pod)
}

func (m *memory) Allocate(pod *v1.Pod, container *v1.Container) error {
	return m.policy.Allocate(klog.Background(), m.state, pod, container)
}

func (d deviceProvider) UpdateAllocatedDevices() { d.devices.UpdateAllocatedDevices() }

func (d deviceProvider) GetAllocatableDevices() []*api.ContainerDevices {
	return containerDevices(d.devices.GetAllocatableDevices())
}

// nothing is the provider of a node without static CPU and memory managers and without dynamic resources.
type nothing struct{}

func (nothing) GetCPUs(string, string) []int64                  { return nil }
func (nothing) GetAllocatableCPUs() []int64                     { return nil }
func (nothing) GetMemory(string, string) []*api.ContainerMemory { return nil }
func (nothing) GetAllocatableMemory() []*api.ContainerMemory    { return nil }
func (nothing) GetDynamicResources(*v1.Pod, *v1.Container) []*api.DynamicResource {
	return nil
}

// GetCPUs corresponds to GetExclusiveCPUs of the CPU manager, as called by the container manager.
func (c *cpus) GetCPUs(podUID, container string) []int64 { return c.exclusive(podUID, container) }
