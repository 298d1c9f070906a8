// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-k8s/tandem/test/kubernetes/dra/claim"
)

const namespace = metav1.NamespaceDefault

// podOf is a pod of one container, without a token.
func podOf(name string) *v1.Pod {
	no := false
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1.PodSpec{
			AutomountServiceAccountToken: &no, EnableServiceLinks: &no,
			Containers: []v1.Container{{Name: "main", Image: "registry.example/train"}},
		},
	}
}

// templatePod gets its devices by a claim of its own, from a template.
func templatePod(name, template string) *v1.Pod {
	pod := podOf(name)
	pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "devices", ResourceClaimTemplateName: &template}}
	pod.Spec.Containers[0].Resources.Claims = []v1.ResourceClaim{{Name: "devices"}}
	return pod
}

// resourcesPod says how many it wants of each extended resource, as with device plugins.
func resourcesPod(name string, resources map[string]int) *v1.Pod {
	pod := podOf(name)
	limits := v1.ResourceList{}
	for name, count := range resources {
		limits[v1.ResourceName(name)] = *resource.NewQuantity(int64(count), resource.DecimalSI)
	}
	pod.Spec.Containers[0].Resources = v1.ResourceRequirements{Limits: limits, Requests: limits}
	return pod
}

// create creates a pod.
func (c *cluster) create(pod *v1.Pod) *v1.Pod {
	c.t.Helper()
	created, err := c.CoreV1().Pods(pod.Namespace).Create(c.t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return created
}

// template makes a template of claims.
func (c *cluster) template(name string, devices resourceapi.DeviceClaim) {
	c.t.Helper()
	template := &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       resourceapi.ResourceClaimTemplateSpec{Spec: resourceapi.ResourceClaimSpec{Devices: devices}},
	}
	_, err := c.ResourceV1().ResourceClaimTemplates(namespace).Create(c.t.Context(), template,
		metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
}

// pairsOf is a claim for so many pairs as the driver publishes them.
func pairsOf(count int) resourceapi.DeviceClaim {
	return claim.Spec{Pairs: count}.Claim("").Spec.Devices
}

// plainPairsOf is a claim for so many pairs as drivers take that publish GPUs and VFs alone: two requests for
// each pair, and a constraint that both are on one switch.
func plainPairsOf(count int) resourceapi.DeviceClaim { return claim.Plain("", count).Spec.Devices }
