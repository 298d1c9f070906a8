// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tandem-k8s/tandem/test/vm/build"
)

// operator deploys a stock plugin, and is configured to use Tandem's image instead.
type operator struct {
	namespace, daemonSet string
	spec                 string // file with its pod
	config               string // ConfigMap that the pod mounts, with a key for each node; "" for none
}

// NVIDIA's operator is absent: it passes devices to the container runtime by CDI alone, and its
// specifications come from a real driver's files.
var operators = []operator{
	{"kube-amd-gpu", "default-device-plugin", "amd-gpu-operator.yaml", ""},
	{"sriov-network-operator", "sriov-device-plugin", "sriov-network-operator.yaml", "vfs"},
}

// operatorSpecs is the folder with the pods of the image's own test.
const operatorSpecs = "deployments/release/image/testdata"

// The result of the SR-IOV network operator for a SriovNetworkNodePolicy for ConnectX-7 with isRdma and
// excludeTopology (createDevicePluginResource of k8snetworkplumbingwg/sriov-network-operator), and the pool's
// name with the operator's prefix.
const (
	policyConfig = `{"resourceList": [{"resourceName": "rdma_vf", "excludeTopology": true, ` +
		`"selectors": {"vendors": ["15b3"], "devices": ["101e"], "isRdma": true}}]}`
	policyResource = "openshift.io/rdma_vf"
)

// sysroot is the guest's /sys for containers (guest/identity.go).
const sysroot = "/run/sysroot"

// manifest returns the objects that operators apply, with the pods of a folder.
func manifest(operators []operator, specs string) (string, error) {
	var items []any
	for _, o := range operators {
		pod, err := o.pod(specs)
		if err != nil {
			return "", err
		}
		items = append(items, o.objects(pod)...)
	}
	content, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	return string(content), err
}

// pod returns an operator's pod with Tandem's image. Its mount of sysfs is the tree with the machine's names.
func (o operator) pod(specs string) (spec corev1.PodSpec, err error) {
	file := filepath.Join(specs, o.spec)
	content, err := os.ReadFile(file)
	if err != nil {
		return spec, err
	}
	if err := yaml.UnmarshalStrict(content, &spec); err != nil {
		return spec, fmt.Errorf("read %s: %w", file, err)
	}
	for i := range spec.Containers {
		spec.Containers[i].Image = build.Image
	}
	for _, v := range spec.Volumes {
		if v.HostPath != nil && v.HostPath.Path == "/sys" {
			v.HostPath.Path = sysroot
		}
	}
	return spec, nil
}

// objects returns the namespace of an operator, the ConfigMap of its pod and the DaemonSet.
func (o operator) objects(pod corev1.PodSpec) []any {
	objects := []any{&corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: o.namespace},
	}}
	if o.config != "" {
		objects = append(objects, &corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: o.config},
			Data:       map[string]string{NodeName: policyConfig},
		})
	}
	labels := map[string]string{"app": o.daemonSet}
	return append(objects, &appsv1.DaemonSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"},
		ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: o.daemonSet},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod},
		},
	})
}
