// SPDX-License-Identifier: Apache-2.0

// Package podsapi is a kubelet's Pods API with the pods of a test.
package podsapi

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

type server struct {
	v1alpha1.UnimplementedPodsServer
	pods func() ([][]byte, error)
}

func (s server) ListPods(
	context.Context, *v1alpha1.ListPodsRequest,
) (*v1alpha1.ListPodsResponse, error) {
	pods, err := s.pods()
	return &v1alpha1.ListPodsResponse{Pods: pods}, err
}

// Serve serves the current pods in a kubelet's folder, until stop is called.
func Serve(kubeletDir string, pods func() []corev1.Pod) (stop func(), err error) {
	return ServeEncoded(kubeletDir, func() (encoded [][]byte, err error) {
		all := pods()
		for i := 0; i < len(all) && err == nil; i++ {
			var pod []byte
			pod, err = all[i].Marshal()
			encoded = append(encoded, pod)
		}
		return encoded, err
	})
}

// ServeEncoded is Serve for pods in the wire format.
func ServeEncoded(kubeletDir string, pods func() ([][]byte, error)) (stop func(), err error) {
	socket := filepath.Join(kubeletDir, kubelet.PodsSocket)
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		return nil, fmt.Errorf("make folder of the Pods API: %w", err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("serve Pods API: %w", err)
	}
	g := grpc.NewServer()
	v1alpha1.RegisterPodsServer(g, server{pods: pods})
	var served sync.WaitGroup
	served.Go(func() { _ = g.Serve(listener) }) // until stopped
	return func() { g.Stop(); served.Wait() }, nil
}
