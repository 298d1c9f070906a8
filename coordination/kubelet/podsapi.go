// SPDX-License-Identifier: Apache-2.0

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

// PodsSocket is the Pods API socket of kubelet 1.37 below the kubelet's directory
// (pkg/kubelet/kubelet_getters.go, getPodsAPIDir).
const PodsSocket = "pods-api/pods-api.sock"

// podsSockets are the possible paths of the Pods API socket below the kubelet's directory, the second by
// KEP-4188.
var podsSockets = []string{PodsSocket, "pods/kubelet.sock"}

// PodsAPI is a client of the kubelet's Pods API (KEP-4188; feature gate PodsAPI, on by default from 1.37),
// version v1alpha1. The API lists the pods of the pod manager with complete specs, each from just before the
// admission. Unlike PodResources List, the call has no side effect.
type PodsAPI struct {
	dir   string
	conns []*connection // by podsSockets
}

// ErrNoPodsAPI means that the kubelet has no Pods API, as before 1.37.
var ErrNoPodsAPI = errors.New("no socket")

// NewPodsAPI returns a client for the sockets below a kubelet directory (/var/lib/kubelet). The first call
// connects.
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

// Close closes the connections.
func (p *PodsAPI) Close() error {
	var failed error
	for _, conn := range p.conns {
		failed = errors.Join(failed, conn.Close())
	}
	return failed
}

// Pods calls each with every pod of the kubelet, including ended pods. A pod is valid during the call.
func (p *PodsAPI) Pods(ctx context.Context, each func(EncodedPod) error) error {
	conn, err := p.served()
	if err != nil {
		return err
	}
	err = conn.split(ctx, pods.Pods_ListPods_FullMethodName, &pods.ListPodsRequest{}, func(pod []byte) error {
		return each(EncodedPod{content: pod})
	})
	if err != nil {
		return fmt.Errorf("list pods of the Pods API: %w", err)
	}
	return nil
}

// ListPods calls each with every pod of the kubelet, over a new connection. A pod has the fields that
// EncodedPod.Decode names, and is valid during the call.
func ListPods(ctx context.Context, kubeletDir string, each func(*corev1.Pod)) error {
	api, err := NewPodsAPI(kubeletDir)
	if err != nil {
		return err
	}
	defer api.Close()
	var pod corev1.Pod
	return api.Pods(ctx, func(e EncodedPod) error {
		err := e.Decode(&pod)
		if err == nil {
			each(&pod)
		}
		return err
	})
}

// served returns the connection to the first existing socket. A kubelet without a Pods API costs one stat
// call.
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
