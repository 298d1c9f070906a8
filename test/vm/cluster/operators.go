// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tandem-k8s/tandem/test/vm/build"
)

// InstallOperators ends Tandem's own DaemonSets, has operators start its image instead of the stock plugins,
// and waits until both offer their devices.
func (n *Node) InstallOperators(ctx context.Context) error {
	if err := n.ready(ctx); err != nil {
		return err
	}
	objects, err := manifest(operators, operatorSpecs)
	if err != nil {
		return err
	}
	registered, err := n.Registrations(ctx)
	if err != nil {
		return err
	}
	if err := n.KubectlEach(ctx, []string{"label", "node", NodeName, "tandem.dev/node-"},
		[]string{"-n", "kube-system", "wait", "--for=delete", "--timeout=5m", "pod",
			"--selector=app.kubernetes.io/name in (" + strings.Join(Daemons, ",") + ")"}); err != nil {
		return err
	}
	if _, err := n.Kubectl(ctx, objects, "apply", "-f", "-"); err != nil {
		return err
	}
	n.pool = policyResource
	return errors.Join(n.RegisteredAfter(ctx, registered, ofOperators()...), n.OffersAll(ctx))
}

// ofOperators returns the operators' DaemonSets.
func ofOperators() (names []string) {
	for _, o := range operators {
		names = append(names, o.daemonSet)
	}
	return names
}

// RemoveOperators waits until nothing that they applied is left.
func (n *Node) RemoveOperators(ctx context.Context) error {
	args := []string{"delete", "--timeout=5m", "namespace"}
	for _, o := range operators {
		args = append(args, o.namespace)
	}
	_, err := n.Kubectl(ctx, "", args...)
	return err
}

// Met returns an error if the operators' plugins do not see each other: in one of their pods, or in the
// folder of the node that both can use without a mount.
func (n *Node) Met(ctx context.Context) error {
	said, err := n.Run(ctx, "tandem status -o json --run-dir=/var/lib/kubelet/device-plugins/tandem")
	if err == nil {
		err = connected(said, n.Shape.Resource, n.vfResource())
	}
	if err != nil {
		return fmt.Errorf("on the node: %w", err)
	}
	for _, o := range operators {
		said, err := n.Kubectl(ctx, "", "-n", o.namespace, "exec", "daemonset/"+o.daemonSet, "--",
			"tandem", "status", "-o", "json")
		if err == nil {
			err = connected(said, n.Shape.Resource, n.vfResource())
		}
		if err != nil {
			return fmt.Errorf("in the pod of %s: %w", o.daemonSet, err)
		}
	}
	return nil
}

// connected returns an error if tandem status shows a resource without a plugin.
func connected(said string, resources ...string) error {
	var status struct {
		Resources []struct {
			Name      string
			Connected bool
		}
	}
	if err := json.Unmarshal([]byte(said), &status); err != nil {
		return fmt.Errorf("read tandem status: %w: %s", err, said)
	}
	var there []string
	for _, r := range status.Resources {
		if r.Connected {
			there = append(there, r.Name)
		}
	}
	for _, resource := range resources {
		if !slices.Contains(there, resource) {
			return fmt.Errorf("no plugin of %s is connected, those of %q are", resource, there)
		}
	}
	return nil
}

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
