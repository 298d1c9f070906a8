// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
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

// TestDoctorTellsHungSockets: a coordinator or a kubelet that hangs stalls every pod start of the node, and
// the checks that need an answer are unknown.
func TestDoctorTellsHungSockets(t *testing.T) {
	t.Parallel()
	sys, offered := sysfs(t, "oci-mi300x-derived", 1), onMachine(t, "oci-mi300x-derived", 1)
	answers, has := recordedNode{answer: offered}, allocatable{devices: idsOf(offered)}
	for _, c := range []struct {
		name    string
		plugins api.CoordinationServer
		kubelet podresources.PodResourcesListerServer
		silent  bool
	}{
		{"both answer", answers, has, true},
		{"plugins", hungPlugins{}, has, false},
		{"kubelet", answers, hungKubelet{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := layOut(t, sys)
			s.remove("kubelet/pod-resources")
			servePodResources(t, s.path("kubelet"), c.kubelet)
			serveAs(t, s.path("run"), c.plugins)
			code, stdout, stderr := run(s.command()...)
			if silent := code == cli.ExitOK; silent != c.silent {
				t.Errorf("exit code %d; want [3 4]:\n%s%s", code, stdout, stderr)
			}
		})
	}
}
