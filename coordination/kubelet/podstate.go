// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// HasEnded reports whether a pod has ended and no container of the pod runs any more. The kubelet sets the
// phase of an evicted pod before the containers stop.
func HasEnded(pod *corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
		return false
	}
	isRunning := func(c corev1.ContainerStatus) bool { return c.State.Running != nil }
	return !slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses,
		pod.Status.EphemeralContainerStatuses), isRunning)
}
