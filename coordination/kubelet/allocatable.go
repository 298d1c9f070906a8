package kubelet

import (
	"context"
	"fmt"

	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Allocatable lists all devices that the kubelet has to give, healthy ones whether they are given or not. It
// may be called at any time.
func (p *PodResources) Allocatable(ctx context.Context) (Devices, error) {
	answer, err := patiently(ctx, p.conn, func() (*podresources.AllocatableResourcesResponse, error) {
		return p.client.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
	})
	if err != nil {
		return nil, fmt.Errorf("get allocatable devices of PodResources: %w", err)
	}
	devices := Devices{}
	for _, d := range answer.GetDevices() {
		devices[d.GetResourceName()] = append(devices[d.GetResourceName()], d.GetDeviceIds()...)
	}
	return devices, nil
}
