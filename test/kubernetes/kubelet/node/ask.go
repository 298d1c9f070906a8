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
)

// Allocatable returns the number of healthy devices of a resource, including allocated ones, as in the node's
// status.
func (n *Node) Allocatable(resource string) int {
	quantity := n.allocatable()[v1.ResourceName(resource)]
	return int(quantity.Value())
}

// WaitAllocatable waits until a resource has this many healthy devices. It polls every few milliseconds,
// because the kubelet sends no notification.
func (n *Node) WaitAllocatable(ctx context.Context, resource string, want int) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		have := n.Allocatable(resource)
		if have == want {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for %d devices of %s, have %d: %w", want, resource, have, context.Cause(ctx))
		}
	}
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
	i := slices.IndexFunc(containers(pod), func(c v1.Container) bool { return c.Name == container })
	if i < 0 {
		return Response{}, fmt.Errorf("pod %s has no container %s", pod.Name, container)
	}
	options, err := n.devices.GetDeviceRunContainerOptions(ctx, pod, &containers(pod)[i])
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
