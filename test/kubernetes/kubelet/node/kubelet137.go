// SPDX-License-Identifier: Apache-2.0

//go:build !kubernetes136

package node

import (
	"context"
	_ "unsafe" // for go:linkname

	cadvisor "github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubernetes/pkg/kubelet/allocation"
	podsapi "k8s.io/kubernetes/pkg/kubelet/apis/pods"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

// Version is the version of the node's kubelet managers. The files kubelet136.go and kubelet137.go have all
// differences between the two.
const Version = "1.37"

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
	return topologymanager.NewManager(klog.Background(), machine, o.Policy, o.Scope, o.policyOptions())
}

func newAllocation(pods *pods, sources config.SourcesReady) allocation.Manager {
	return allocation.NewInMemoryManager(klog.Background(), nil, nil, pods.GetActivePods, pods.byUID, sources,
		nil)
}

func newPodsServer(pods *pods, sources config.SourcesReady) *podsapi.PodsServer {
	return podsapi.NewPodsServer(nil, podManager{pods: pods}, pods, sources)
}

func (n *Node) addPod(others []*v1.Pod, pod *v1.Pod) (ok bool, reason, message string) {
	return n.allocation.AddPod(context.Background(), others, pod)
}

func (n *Node) removePod(pod *v1.Pod) { n.allocation.RemovePod(klog.Background(), pod.UID) }

func (n *Node) addContainer(pod *v1.Pod, c *v1.Container, id string) {
	n.topology.AddContainer(klog.Background(), pod, c, id)
}

func (n *Node) removeContainer(id string) error {
	return n.topology.RemoveContainer(klog.Background(), id)
}

func (n *Node) affinity(pod *v1.Pod, container string) topologymanager.TopologyHint {
	return n.topology.GetAffinity(klog.Background(), string(pod.UID), container)
}

func (n *Node) allocatable() v1.ResourceList {
	_, allocatable, _ := n.devices.GetCapacity(klog.Background())
	return allocatable
}

func (n *Node) healthy() devicemanager.ResourceDeviceInstances {
	return n.devices.GetAllocatableDevices(klog.Background())
}

func (c *cpus) GetTopologyHints(
	log klog.Logger, pod *v1.Pod, container *v1.Container, operation lifecycle.Operation,
) map[string][]topologymanager.TopologyHint {
	return c.policy.GetTopologyHints(log, c.state, pod, container, operation)
}

func (c *cpus) GetPodTopologyHints(
	log klog.Logger, pod *v1.Pod, operation lifecycle.Operation,
) map[string][]topologymanager.TopologyHint {
	return c.policy.GetPodTopologyHints(log, c.state, pod, operation)
}

func (c *cpus) AllocatePod(log klog.Logger, pod *v1.Pod, operation lifecycle.Operation) error {
	return c.policy.AllocatePod(log, c.state, pod, operation)
}

func (c *cpus) Allocate(
	ctx context.Context, pod *v1.Pod, container *v1.Container, operation lifecycle.Operation,
) error {
	return c.policy.Allocate(klog.FromContext(ctx), c.state, pod, container, operation)
}

func (m *memory) GetTopologyHints(
	log klog.Logger, pod *v1.Pod, container *v1.Container, operation lifecycle.Operation,
) map[string][]topologymanager.TopologyHint {
	return m.policy.GetTopologyHints(log, m.state, pod, container, operation)
}

func (m *memory) GetPodTopologyHints(
	log klog.Logger, pod *v1.Pod, operation lifecycle.Operation,
) map[string][]topologymanager.TopologyHint {
	return m.policy.GetPodTopologyHints(log, m.state, pod, operation)
}

func (m *memory) AllocatePod(log klog.Logger, pod *v1.Pod, operation lifecycle.Operation) error {
	return m.policy.AllocatePod(log, m.state, pod, operation)
}

func (m *memory) Allocate(
	ctx context.Context, pod *v1.Pod, container *v1.Container, operation lifecycle.Operation,
) error {
	return m.policy.Allocate(ctx, m.state, pod, container, operation)
}

func (d deviceProvider) UpdateAllocatedDevices(log klog.Logger) {
	d.devices.UpdateAllocatedDevices(log)
}

func (d deviceProvider) GetAllocatableDevices(log klog.Logger) []*api.ContainerDevices {
	return containerDevices(d.devices.GetAllocatableDevices(log))
}

// nothing is the provider of a node without static CPU and memory managers and without dynamic resources.
type nothing struct{}

func (nothing) GetCPUs(*v1.Pod, *v1.Container) []int64                  { return nil }
func (nothing) GetPodCPUs(string) []int64                               { return nil }
func (nothing) GetAllocatableCPUs() []int64                             { return nil }
func (nothing) GetPodMemory(klog.Logger, string) []*api.ContainerMemory { return nil }
func (nothing) GetAllocatableMemory(klog.Logger) []*api.ContainerMemory { return nil }
func (nothing) GetMemory(klog.Logger, *v1.Pod, *v1.Container) []*api.ContainerMemory {
	return nil
}
func (nothing) GetDynamicResources(klog.Logger, *v1.Pod, *v1.Container) []*api.DynamicResource {
	return nil
}

// GetCPUs corresponds to GetExclusiveCPUs of the CPU manager, as called by the container manager.
func (c *cpus) GetCPUs(pod *v1.Pod, container *v1.Container) []int64 {
	return c.exclusive(string(pod.UID), container.Name)
}

// GetPodCPUs returns none: pod-level resources are not supported.
func (c *cpus) GetPodCPUs(string) []int64 { return nil }
