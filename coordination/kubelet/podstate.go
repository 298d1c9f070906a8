// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// UIDs returns the kubelet's UIDs of pods, in the order of the list. The API server has a mirror of a static
// pod, with the UID of the static pod in an annotation (CreateMirrorPod in pkg/kubelet/pod/mirror_client.go).
// The owner of a mirror is its node. Anybody can annotate a pod: an annotation never yields the UID of
// another pod in the list.
func UIDs(list []corev1.Pod) []string {
	uids, taken := make([]string, len(list)), map[string]bool{}
	for i := range list {
		uids[i] = string(list[i].UID)
		taken[uids[i]] = true
	}
	isNode := func(owner metav1.OwnerReference) bool { return owner.APIVersion == "v1" && owner.Kind == "Node" }
	for i := range list {
		static := list[i].Annotations[corev1.MirrorPodAnnotationKey]
		if static != "" && !taken[static] && slices.ContainsFunc(list[i].OwnerReferences, isNode) {
			uids[i], taken[static] = static, true
		}
	}
	return uids
}
