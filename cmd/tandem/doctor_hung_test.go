// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/tandem-k8s/tandem/coordination/api"
)

// errHung is what a client gets from a server that accepts connections and answers no question in time.
var errHung = status.Error(codes.DeadlineExceeded, "context deadline exceeded")

type hungPlugins struct{ plugins }

func (hungPlugins) Status(context.Context, *api.StatusRequest) (*api.StatusResponse, error) {
	return nil, errHung
}

type hungKubelet struct {
	podresources.UnimplementedPodResourcesListerServer
}

func (hungKubelet) List(
	context.Context, *podresources.ListPodResourcesRequest,
) (*podresources.ListPodResourcesResponse, error) {
	return nil, errHung
}

func (hungKubelet) GetAllocatableResources(
	context.Context, *podresources.AllocatableResourcesRequest,
) (*podresources.AllocatableResourcesResponse, error) {
	return nil, errHung
}

// serve answers in the node's run folder, and in the kubelet's folder as a kubelet with all devices unless
// another one is given.
func (s *sick) serve(plugins api.CoordinationServer, kubelet podresources.PodResourcesListerServer) {
	s.t.Helper()
	if kubelet == nil {
		answer, err := plugins.Status(s.t.Context(), nil)
		if err == nil {
			kubelet = allocatable{devices: idsOf(answer)}
		} else {
			kubelet = allocatable{devices: idsOf(onMachine(s.t, oci, 1))}
		}
	}
	s.remove("kubelet/pod-resources")
	servePodResources(s.t, s.path("kubelet"), kubelet)
	serveAs(s.t, s.path("run"), plugins)
}
