// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"

	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/tandem-k8s/tandem/topology"
)

// Allocatable returns the kubelet's allocatable devices: all healthy devices, assigned or not. It may be
// called at any time.
func (p *PodResources) Allocatable(ctx context.Context) (Devices, error) {
	answer, err := p.allocatable(ctx)
	if err != nil {
		return nil, fmt.Errorf("get allocatable devices of PodResources: %w", err)
	}
	devices := Devices{}
	for _, d := range answer.GetDevices() {
		devices[d.GetResourceName()] = append(devices[d.GetResourceName()], d.GetDeviceIds()...)
	}
	return devices, nil
}

// AllocatableCPUs returns the CPUs that the static CPU policy can assign exclusively, assigned or not: all
// CPUs except those reserved for the system. With another policy it returns none. It may be called at any
// time.
func (p *PodResources) AllocatableCPUs(ctx context.Context) (topology.CPUSet, error) {
	answer, err := p.allocatable(ctx)
	if err != nil {
		return nil, fmt.Errorf("get allocatable CPUs of PodResources: %w", err)
	}
	set := topology.CPUSet{}
	addCPUs(set, answer.GetCpuIds())
	return set, nil
}

func (p *PodResources) allocatable(ctx context.Context) (*podresources.AllocatableResourcesResponse, error) {
	return patiently(ctx, p.conn, func() (*podresources.AllocatableResourcesResponse, error) {
		return p.client.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
	})
}
