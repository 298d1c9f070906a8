// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// Kubelet tells the pods of the node, and the devices that they have from device plugins.
type Kubelet interface {
	// Pods returns all pods without their specs, or kubelet.ErrNoPodsAPI without a Pods API.
	Pods(ctx context.Context) ([]corev1.Pod, error)
	// List and Get are calls of PodResources; see kubelet.PodResources.
	List(ctx context.Context) (kubelet.View, error)
	Get(ctx context.Context, pod kubelet.Pod) (kubelet.View, error)
}

// kubeletSockets asks over the sockets in the kubelet's directory, with a new connection for each call.
type kubeletSockets struct{ dir string }

// Pods asks the Pods API.
func (s kubeletSockets) Pods(ctx context.Context) ([]corev1.Pod, error) {
	var all []corev1.Pod
	err := kubelet.ListPods(ctx, s.dir, func(pod *corev1.Pod) {
		all = append(all, corev1.Pod{ObjectMeta: pod.ObjectMeta, Status: pod.Status})
	})
	return all, err
}

// List asks PodResources. Without a socket, of which a kubelet leaves the file, the error is fs.ErrNotExist.
func (s kubeletSockets) List(ctx context.Context) (kubelet.View, error) {
	if _, err := os.Stat(kubelet.PodResourcesSocket(s.dir)); err != nil {
		return kubelet.View{}, fmt.Errorf("list pods of the kubelet: %w", err)
	}
	return s.ask(func(r *kubelet.PodResources) (kubelet.View, error) { return r.List(ctx) })
}

// Get asks PodResources.
func (s kubeletSockets) Get(ctx context.Context, pod kubelet.Pod) (kubelet.View, error) {
	return s.ask(func(r *kubelet.PodResources) (kubelet.View, error) { return r.Get(ctx, pod) })
}

func (s kubeletSockets) ask(call func(*kubelet.PodResources) (kubelet.View, error)) (kubelet.View, error) {
	resources, err := kubelet.NewPodResources(s.dir)
	if err != nil {
		return kubelet.View{}, err
	}
	defer resources.Close()
	return call(resources)
}
