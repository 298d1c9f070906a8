// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/test/model"
	"github.com/tandem-k8s/tandem/test/simulation/seeds"
	"github.com/tandem-k8s/tandem/topology"
)

// endpoints are the kubelet's connections to the plugins of a node.
type endpoints struct {
	mu  sync.Mutex
	all map[string][]*endpoint // by resource, the newest registration last
}

// endpoint is the kubelet's connection to a plugin.
type endpoint struct {
	plugin v1beta1.DevicePluginServer
	owner  *process
	cancel context.CancelFunc // ends the stream
	list   []*v1beta1.Device  // the newest list; guarded by the mutex of endpoints
}

// registerPause is the time until a plugin registers again after the kubelet has ended the stream.
const registerPause = 130 * time.Millisecond

// serve registers a plugin of a resource, and again whenever the kubelet ends the stream, until ctx is done.
func (e *endpoints) serve(
	ctx context.Context, owner *process, resource string, plugin v1beta1.DevicePluginServer,
) error {
	for ctx.Err() == nil {
		streaming, cancel := context.WithCancel(ctx)
		end := &endpoint{plugin: plugin, owner: owner, cancel: cancel}
		e.add(resource, end)
		_ = plugin.ListAndWatch(&v1beta1.Empty{}, &stream{endpoints: e, to: end, ctx: streaming})
		e.remove(resource, end)
		cancel()
		seeds.Pause(ctx, registerPause)
	}
	return nil
}

func (e *endpoints) add(resource string, end *endpoint) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all[resource] = append(e.all[resource], end)
}

func (e *endpoints) remove(resource string, end *endpoint) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all[resource] = slices.DeleteFunc(e.all[resource], func(o *endpoint) bool { return o == end })
}

// newest returns the endpoint that the kubelet uses for a resource, nil for none.
func (e *endpoints) newest(resource string) *endpoint {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, end := range slices.Backward(e.all[resource]) {
		if !end.owner.killed.Load() {
			return end
		}
	}
	return nil
}

// closeStreams ends all streams, as a kubelet does that restarts.
func (e *endpoints) closeStreams() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ends := range e.all {
		for _, end := range ends {
			end.cancel()
		}
	}
}

// listed returns the devices of a resource's newest list; none without a list.
func (e *endpoints) listed(resource string) map[string]bool {
	end := e.newest(resource)
	if end == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	listed := map[string]bool{}
	for _, d := range end.list {
		listed[d.GetID()] = true
	}
	return listed
}

// devices returns the devices of a resource's newest list; none without a list.
func (e *endpoints) devices(resource string) ([]device.Device, error) {
	end := e.newest(resource)
	if end == nil {
		return nil, nil
	}
	e.mu.Lock()
	list := end.list
	e.mu.Unlock()
	var devices []device.Device
	for _, d := range list {
		address, err := topology.ParseAddress(d.GetID())
		if err != nil {
			return nil, err
		}
		listed := device.Device{ID: d.GetID(), Address: address, Healthy: d.GetHealth() == v1beta1.Healthy}
		for _, node := range d.GetTopology().GetNodes() {
			listed.NUMA = topology.Node(int(node.GetID()))
		}
		devices = append(devices, listed)
	}
	return devices, nil
}

// stream is a device list stream.
type stream struct {
	grpc.ServerStream
	endpoints *endpoints
	to        *endpoint
	ctx       context.Context
}

// Context ends with the stream.
func (s *stream) Context() context.Context { return s.ctx }

// Send receives a list.
func (s *stream) Send(list *v1beta1.ListAndWatchResponse) error {
	s.endpoints.mu.Lock()
	defer s.endpoints.mu.Unlock()
	s.to.list = list.GetDevices()
	return nil
}

// errDead is the kubelet's error for a plugin that died during a call.
var errDead = errors.New("the plugin died")

// prefer calls GetPreferredAllocation.
func (e *endpoint) prefer(q model.Question) ([]string, error) {
	answer, err := e.plugin.GetPreferredAllocation(context.Background(), &v1beta1.PreferredAllocationRequest{
		ContainerRequests: []*v1beta1.ContainerPreferredAllocationRequest{{
			AvailableDeviceIDs: q.Available, MustIncludeDeviceIDs: q.MustInclude, AllocationSize: int32(q.Size),
		}},
	})
	switch {
	case err != nil:
		return nil, err
	case e.owner.killed.Load():
		return nil, errDead
	}
	return answer.GetContainerResponses()[0].GetDeviceIDs(), nil
}

// allocate calls Allocate.
func (e *endpoint) allocate(ids []string) (*v1beta1.ContainerAllocateResponse, error) {
	answer, err := e.plugin.Allocate(context.Background(), &v1beta1.AllocateRequest{
		ContainerRequests: []*v1beta1.ContainerAllocateRequest{{DevicesIds: ids}},
	})
	switch {
	case err != nil:
		return nil, err
	case e.owner.killed.Load():
		return nil, errDead
	}
	return answer.GetContainerResponses()[0], nil
}
