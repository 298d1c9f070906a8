// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// Allocatable returns the number of healthy devices of a resource, including allocated ones, as in the node's
// status.
func (n *Node) Allocatable(resource string) int {
	quantity := n.allocatable()[v1.ResourceName(resource)]
	return int(quantity.Value())
}

// Poll asks every few milliseconds until a condition is true, for what sends no notification.
func Poll(ctx context.Context, isTrue func() bool) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !isTrue() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// WaitAllocatable waits until a resource has this many healthy devices.
func (n *Node) WaitAllocatable(ctx context.Context, resource string, want int) error {
	if err := Poll(ctx, func() bool { return n.Allocatable(resource) == want }); err != nil {
		return fmt.Errorf("wait for %d devices of %s, have %d: %w", want, resource, n.Allocatable(resource), err)
	}
	return nil
}

// Inventory returns the healthy devices of a resource, allocated or not, each with the NUMA nodes of its
// hint.
func (n *Node) Inventory(resource string) map[string][]int {
	inventory := map[string][]int{}
	for id, device := range n.healthy()[resource] {
		var nodes []int
		for _, node := range device.GetTopology().GetNodes() {
			nodes = append(nodes, int(node.GetID()))
		}
		inventory[id] = nodes
	}
	return inventory
}

// Devices returns the device IDs of a container of an admitted pod, by resource, sorted, because the kubelet
// keeps no order.
func (n *Node) Devices(pod *v1.Pod, container string) map[string][]string {
	held := map[string][]string{}
	for resource, devices := range n.devices.GetDevices(string(pod.UID), container) {
		held[resource] = slices.Sorted(maps.Keys(devices))
	}
	return held
}

// Held returns the devices of the containers of pods, by the UID of the pod and the name of the container.
func (n *Node) Held(pods []*v1.Pod) map[string]kubelet.Devices {
	held := map[string]kubelet.Devices{}
	for _, pod := range pods {
		for _, c := range Containers(pod) {
			if devices := n.Devices(pod, c.Name); len(devices) > 0 {
				held[string(pod.UID)+"/"+c.Name] = devices
			}
		}
	}
	return held
}

// Affinity returns the NUMA nodes that the topology manager chose for a container of an admitted pod,
// ascending; nil means no request for any.
func (n *Node) Affinity(pod *v1.Pod, container string) []int {
	affinity := n.affinity(pod, container).NUMANodeAffinity
	if affinity == nil {
		return nil
	}
	return affinity.GetBits()
}

// Response is the plugins' part of a container's start.
type Response struct {
	Env         map[string]string
	DeviceNodes []string // paths in the container, per resource in the order of its plugin
	Annotations map[string]string
	Mounts      map[string]string // path on the host by path in the container
}

// Response returns the kubelet's input to the container runtime for a container of an admitted pod.
func (n *Node) Response(ctx context.Context, pod *v1.Pod, container string) (Response, error) {
	i := slices.IndexFunc(Containers(pod), func(c v1.Container) bool { return c.Name == container })
	if i < 0 {
		return Response{}, fmt.Errorf("pod %s has no container %s", pod.Name, container)
	}
	options, err := n.devices.GetDeviceRunContainerOptions(ctx, pod, &Containers(pod)[i])
	if err != nil {
		return Response{}, fmt.Errorf("start container %s of pod %s: %w", container, pod.Name, err)
	}
	return response(options), nil
}

func response(options *devicemanager.DeviceRunContainerOptions) Response {
	r := Response{Env: map[string]string{}, Annotations: map[string]string{}, Mounts: map[string]string{}}
	if options == nil { // the container holds no devices
		return r
	}
	for _, env := range options.Envs {
		r.Env[env.Name] = env.Value
	}
	for _, device := range options.Devices {
		r.DeviceNodes = append(r.DeviceNodes, device.PathInContainer)
	}
	for _, mount := range options.Mounts {
		r.Mounts[mount.ContainerPath] = mount.HostPath
	}
	for _, annotation := range options.Annotations {
		r.Annotations[annotation.Name] = annotation.Value
	}
	return r
}
