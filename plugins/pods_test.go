// SPDX-License-Identifier: Apache-2.0

package plugins_test

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination/intent"
)

// pending is a pod that the kubelet admits: its container c requests devices.
func pending(name string, requests map[string]string) corev1.Pod {
	limits := corev1.ResourceList{}
	for resourceName, count := range requests {
		limits[corev1.ResourceName(resourceName)] = resource.MustParse(count)
	}
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: name, UID: types.UID(name), CreationTimestamp: metav1.Unix(1, 0),
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "c", Resources: corev1.ResourceRequirements{Limits: limits, Requests: limits},
		}}},
	}
}

// running is a pod that the kubelet has started.
func running(name string, requests map[string]string) corev1.Pod {
	p := pending(name, requests)
	p.Status.Phase = corev1.PodRunning
	return p
}

// required is a pending pod whose pairs must be on one switch.
func required(name string, requests map[string]string) corev1.Pod {
	p := pending(name, requests)
	p.Annotations = map[string]string{intent.AlignmentKey: "required"}
	return p
}

// onePair is the request of a GPU and a VF.
var onePair = map[string]string{gpus: "1", vfs: "1"}
