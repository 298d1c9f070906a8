// SPDX-License-Identifier: Apache-2.0

// Package tenant makes the largest and strangest pods of a user who may create pods in one namespace and
// nothing else. Every node has to take them: the API server accepts them, the scheduler binds them, and the
// kubelet lists them for every reader of its pods.
package tenant

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Namespace is the tenant's.
const Namespace = "tenant"

// Limits of what a tenant creates.
const (
	// Object is the size of the largest pod in bytes: etcd takes requests of 1.5 MiB (--max-request-bytes), and
	// the status and the managed fields are parts of the object.
	Object = 1400 << 10
	// Annotations is the size of all annotations of a pod (TotalAnnotationSizeLimitB in
	// k8s.io/apimachinery/pkg/api/validation/objectmeta.go).
	Annotations = 256 << 10
	// Number is the number of pods of a node (maxPods of the kubelet's configuration).
	Number = 110
)

// Pods returns a number of running pods of at most bytes each, which elements of a field fill. Each has at
// least two elements.
func Pods(number, bytes int, field Field) []corev1.Pod {
	var pods []corev1.Pod
	for i := range number {
		pods = append(pods, newPod(i, bytes, field))
	}
	return pods
}

func newPod(index, bytes int, field Field) corev1.Pod {
	began := metav1.NewTime(time.Unix(900_000_000, 0)) // 1998, before the clock of package synctest begins
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: Namespace, Name: fmt.Sprintf("pod-%03d", index), CreationTimestamp: began,
			UID: types.UID(fmt.Sprintf("tenant-%03d", index)),
		},
		Spec:   corev1.PodSpec{Containers: []corev1.Container{container("c")}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &began},
	}
	field(&p, 0)
	one := p.Size()
	field(&p, 1)
	each := p.Size() - one + 2 // the length of a longer field takes up to two bytes more
	for i := 2; one+i*each < bytes; i++ {
		field(&p, i)
	}
	return p
}

// Asking returns pods that the kubelet has not admitted yet, as it lists a pod during its admission.
func Asking(pods []corev1.Pod) []corev1.Pod {
	for i := range pods {
		pods[i].Status = corev1.PodStatus{Phase: corev1.PodPending}
	}
	return pods
}

// Refused returns pods that the kubelet has refused with a reason.
func Refused(reason string, pods []corev1.Pod) []corev1.Pod {
	for i := range pods {
		now := metav1.Now()
		pods[i].Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: reason, StartTime: &now}
	}
	return pods
}

// container returns a container as small as the API server makes it.
func container(name string) corev1.Container {
	return corev1.Container{
		Name: name, Image: "registry.example/a", ImagePullPolicy: corev1.PullIfNotPresent,
		TerminationMessagePath:   corev1.TerminationMessagePathDefault,
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
	}
}
