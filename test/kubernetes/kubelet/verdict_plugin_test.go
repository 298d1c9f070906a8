// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/api"
)

// near is a plugin in the kubelet's process that asks a coordinator in the same process.
type near struct {
	v1beta1.DevicePluginClient
	resource    string
	coordinator *admission.Coordinator
}

func (p *near) GetDevicePluginOptions(
	context.Context, *v1beta1.Empty, ...grpc.CallOption,
) (*v1beta1.DevicePluginOptions, error) {
	return &v1beta1.DevicePluginOptions{GetPreferredAllocationAvailable: true}, nil
}

func (p *near) GetPreferredAllocation(
	ctx context.Context, r *v1beta1.PreferredAllocationRequest, _ ...grpc.CallOption,
) (*v1beta1.PreferredAllocationResponse, error) {
	q := r.ContainerRequests[0]
	ids, _, err := p.coordinator.Prefer(ctx, &api.PreferRequest{
		Resource: p.resource, Available: q.AvailableDeviceIDs, MustInclude: q.MustIncludeDeviceIDs,
		Size: uint32(q.AllocationSize),
	})
	return &v1beta1.PreferredAllocationResponse{
		ContainerResponses: []*v1beta1.ContainerPreferredAllocationResponse{{DeviceIDs: ids}},
	}, err
}

func (p *near) Allocate(
	ctx context.Context, r *v1beta1.AllocateRequest, _ ...grpc.CallOption,
) (*v1beta1.AllocateResponse, error) {
	ids := r.ContainerRequests[0].DevicesIds
	p.coordinator.Begin(p.resource, ids)
	defer p.coordinator.Returned(p.resource, ids, false)
	taken, err := p.coordinator.Allocated(ctx, p.resource, ids)
	if err == nil && taken.Refusal != "" {
		err = errors.New(taken.Refusal)
	}
	return &v1beta1.AllocateResponse{
		ContainerResponses: []*v1beta1.ContainerAllocateResponse{{}},
	}, err
}
