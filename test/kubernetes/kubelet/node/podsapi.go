// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	api "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
	kubeletgrpc "k8s.io/kubernetes/pkg/kubelet/apis/grpc"
	server "k8s.io/kubernetes/pkg/kubelet/apis/pods"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/pod"
)

// servePodsAPI serves like ListenAndServePodsServer in pkg/kubelet/server/server.go, but can be stopped.
// WatchPods sends no changes.
func servePodsAPI(
	dir string, pods *pods, sources config.SourcesReady, d *disturbance,
) (stop func(), err error) {
	socket := filepath.Join(dir, server.Socket+".sock")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(socket); err != nil {
		return nil, err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("serve Pods API: %w", err)
	}
	ctx := klog.NewContext(context.Background(), klog.Background())
	g := grpc.NewServer(
		kubeletgrpc.WithRateLimiter(ctx, "pods", server.DefaultQPS, server.DefaultBurstTokens),
		grpc.ChainUnaryInterceptor(d.grpc))
	api.RegisterPodsServer(g, newPodsServer(pods, sources))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := g.Serve(listener); err != nil {
			klog.Background().Error(err, "serve Pods API")
		}
	}()
	return func() { g.Stop(); <-done }, nil
}

// podManager is the part of the kubelet's pod manager for the Pods API.
type podManager struct {
	pod.Manager
	pods *pods
}

func (m podManager) GetPods() []*v1.Pod { return m.pods.GetPods() }

func (m podManager) GetPodByUID(uid types.UID) (*v1.Pod, bool) { return m.pods.byUID(uid) }

// GetPodStatus corresponds to the status manager: a rejected or ended pod has failed, other pods have no
// status.
func (p *pods) GetPodStatus(uid types.UID) (v1.PodStatus, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return v1.PodStatus{Phase: v1.PodFailed}, p.inactive[uid]
}
