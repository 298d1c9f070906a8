// SPDX-License-Identifier: Apache-2.0

// Package podresources serves the kubelet's PodResources API, and other services at sockets, in tests.
package podresources

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Server is the API with the pods that Pods returns at a call.
type Server struct {
	v1.UnimplementedPodResourcesListerServer
	Pods func() []*v1.PodResources
}

// List returns all pods.
func (s Server) List(context.Context, *v1.ListPodResourcesRequest) (*v1.ListPodResourcesResponse, error) {
	return &v1.ListPodResourcesResponse{PodResources: s.Pods()}, nil
}

// Get returns the pod of a name, or the kubelet's error.
func (s Server) Get(_ context.Context, q *v1.GetPodResourcesRequest) (*v1.GetPodResourcesResponse, error) {
	for _, pod := range s.Pods() {
		if pod.GetName() == q.GetPodName() {
			return &v1.GetPodResourcesResponse{PodResources: pod}, nil
		}
	}
	return nil, fmt.Errorf("pod %s in namespace %s not found", q.GetPodName(), q.GetPodNamespace())
}

// Serve serves the API at its socket below a kubelet's folder until the end of the test.
func Serve(t testing.TB, kubeletDir string, server v1.PodResourcesListerServer) {
	t.Helper()
	Listen(t, filepath.Join(kubeletDir, "pod-resources", "kubelet.sock"), func(g *grpc.Server) {
		v1.RegisterPodResourcesListerServer(g, server)
	})
}

// Listen serves services at a socket, whose folder it makes, until the end of the test.
func Listen(t testing.TB, socket string, register func(*grpc.Server)) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	register(g)
	var served sync.WaitGroup
	served.Go(func() {
		// a server that is stopped before it serves says so
		if err := g.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	t.Cleanup(func() { g.Stop(); served.Wait() })
}
