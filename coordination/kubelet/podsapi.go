package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	pods "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

// podsSockets are where a kubelet can have its Pods API, below its folder: where kubelet 1.37 puts it
// (pkg/kubelet/kubelet_getters.go, getPodsAPIDir), and where KEP-4188 says.
var podsSockets = []string{"pods-api/pods-api.sock", "pods/kubelet.sock"}

// PodsAPI is a client of the kubelet's Pods API (KEP-4188; feature gate PodsAPI, on by default from 1.37),
// version v1alpha1. It lists what the pod manager holds: a pod is there from just before its admission, with
// its whole spec. Listing changes nothing in the kubelet, unlike PodResources.
type PodsAPI struct {
	dir   string
	conns []*connection // by podsSockets
}

// ErrNoPodsAPI says that the kubelet has no Pods API, as those before 1.37 have none.
var ErrNoPodsAPI = errors.New("no socket")

// NewPodsAPI makes a client for the sockets below a kubelet folder (/var/lib/kubelet). It connects when it is
// first asked.
func NewPodsAPI(kubeletDir string) (*PodsAPI, error) {
	p := &PodsAPI{dir: kubeletDir}
	for _, socket := range podsSockets {
		conn, err := dial(filepath.Join(kubeletDir, socket))
		if err != nil {
			return nil, fmt.Errorf("open Pods API client: %w", err)
		}
		p.conns = append(p.conns, conn)
	}
	return p, nil
}

// Close ends the connections.
func (p *PodsAPI) Close() error {
	var failed error
	for _, conn := range p.conns {
		failed = errors.Join(failed, conn.Close())
	}
	return failed
}

// Pods lists all pods that the kubelet knows, those that have ended included. Where the kubelet's limiter
// refuses it asks again, until ctx is done.
func (p *PodsAPI) Pods(ctx context.Context) ([]corev1.Pod, error) {
	conn, err := p.served()
	if err != nil {
		return nil, err
	}
	answer, err := patiently(ctx, conn, func() (*pods.ListPodsResponse, error) {
		return pods.NewPodsClient(conn).ListPods(ctx, &pods.ListPodsRequest{})
	})
	if err != nil {
		return nil, fmt.Errorf("list pods of the Pods API: %w", err)
	}
	list := make([]corev1.Pod, len(answer.GetPods()))
	for i, encoded := range answer.GetPods() {
		if err := list[i].Unmarshal(encoded); err != nil {
			return nil, fmt.Errorf("decode pod of the Pods API: %w", err)
		}
	}
	return list, nil
}

// ListPods asks once, over a connection of its own.
func ListPods(ctx context.Context, kubeletDir string) ([]corev1.Pod, error) {
	api, err := NewPodsAPI(kubeletDir)
	if err != nil {
		return nil, err
	}
	defer api.Close()
	return api.Pods(ctx)
}

// served is the connection to the first socket that is there. A kubelet without Pods API costs a stat, not a
// wait.
func (p *PodsAPI) served() (*connection, error) {
	for i, socket := range podsSockets {
		info, err := os.Stat(filepath.Join(p.dir, socket))
		if err == nil && info.Mode().Type() == fs.ModeSocket {
			return p.conns[i], nil
		}
	}
	return nil, fmt.Errorf("find %s in %s: %w; kubelets serve the Pods API from 1.37 on, "+
		"or with the feature gate PodsAPI",
		podsSockets[0], p.dir, ErrNoPodsAPI)
}
