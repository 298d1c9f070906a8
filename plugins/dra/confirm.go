// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// confirm asks the API server for pods. The checkpoint contains only UIDs; PodResources gives the name of a
// UID while the pod lives, and the API server confirms the name.
func (r *recordedPods) confirm(ctx context.Context, recorded kubelet.Checkpoint, pods map[string]bool) error {
	candidates, err := r.candidates(ctx, recorded, pods)
	problems := []error{err}
	for uid := range pods {
		known := r.pods[uid]
		confirmed := known != recordedPod{}
		name := known.Name
		if !confirmed {
			name = candidates[uid]
		}
		if known.Ended || name.Name == "" {
			continue
		}
		pod, err := r.client.CoreV1().Pods(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
		switch {
		case err == nil && string(pod.UID) == uid:
			r.pods[uid] = recordedPod{Name: name, Ended: kubelet.HasEnded(pod), Grace: graceOf(pod)}
		case err != nil && !apierrors.IsNotFound(err):
			problems = append(problems, fmt.Errorf("ask for pod %s/%s: %w", name.Namespace, name.Name, err))
		case confirmed:
			problems = append(problems, r.confirmDeleted(ctx, recorded, uid))
		}
	}
	return errors.Join(problems...)
}

// graceOf returns the time that the kubelet gives the containers of a deleted pod.
func graceOf(pod *corev1.Pod) time.Duration {
	seconds := pod.Spec.TerminationGracePeriodSeconds
	if pod.DeletionGracePeriodSeconds != nil {
		seconds = pod.DeletionGracePeriodSeconds
	}
	if seconds == nil {
		return 0
	}
	return time.Duration(*seconds) * time.Second
}

// confirmDeleted judges a pod that the API server no longer has. A forced deletion removes the object at
// once, while containers run for their grace period, and longer if the kubelet cannot reach the API server.
// The pod has ended after the grace period, if PodResources does not list the pod's devices.
func (r *recordedPods) confirmDeleted(ctx context.Context, recorded kubelet.Checkpoint, uid string) error {
	pod := r.pods[uid]
	if pod.Missing.IsZero() {
		pod.Missing = r.now()
	}
	listed, err := r.lists(ctx, recorded, uid)
	pod.Ended = err == nil && !listed && r.now().Sub(pod.Missing) >= pod.Grace
	r.pods[uid] = pod
	return err
}

// lists reports whether PodResources lists a pod with the devices of the checkpoint. It uses Get, which
// changes nothing in the kubelet, unlike List. A kubelet without Get lists nothing.
func (r *recordedPods) lists(ctx context.Context, recorded kubelet.Checkpoint, uid string) (bool, error) {
	name := r.pods[uid].Name
	view, err := r.kubelet.Get(ctx, name)
	if code := status.Code(err); code == codes.Unavailable || code == codes.DeadlineExceeded {
		return false, err
	}
	for container, devices := range recorded.Containers() {
		one := kubelet.Container{Pod: name, Name: containerOf(container)}
		if podOf(container) == uid && maps.EqualFunc(devices, view.Containers[one], sameDevices) {
			return true, nil
		}
	}
	return false, nil
}
