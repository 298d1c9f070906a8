// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// OfKubelet returns those pods of the kubelet's own list that have not ended. The list has to be read after
// the checkpoint, so that it has all pods of the checkpoint that have not ended.
func OfKubelet(list []corev1.Pod) *Pods {
	pods := &Pods{Names: map[string]kubelet.Pod{}, All: true}
	for i := range list {
		if pod := &list[i]; !HasEnded(pod) {
			pods.Names[string(pod.UID)] = kubelet.Pod{Namespace: pod.Namespace, Name: pod.Name}
		}
	}
	return pods
}

// HasEnded reports whether a pod has ended and none of its containers runs any more. The kubelet sets the
// phase of a pod that it evicts before it stops the containers.
func HasEnded(pod *corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
		return false
	}
	isRunning := func(c corev1.ContainerStatus) bool { return c.State.Running != nil }
	return !slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses,
		pod.Status.EphemeralContainerStatuses), isRunning)
}
