// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestRefusedPodsAsExplained: doctor and "kubectl tandem explain" agree whether the empty node admits a
// refused pod. Each NUMA node has four GPUs, and four VFs of each of two pools.
func TestRefusedPodsAsExplained(t *testing.T) {
	n := Node{Tree: topology.Assemble(nil, nil, nil)}
	status := &coordinator.Status{}
	for name, kind := range map[string]device.Kind{
		"a.com/gpu": device.GPU, "a.com/x": device.VF, "a.com/y": device.VF,
	} {
		r := coordinator.Resource{Name: name, Kind: string(kind), Connected: true}
		pool := model.Resource{Name: name, Kind: model.VF}
		for i := range 8 {
			numa := topology.Node(i / 4)
			id := fmt.Sprint(name, i)
			r.Devices = append(r.Devices, coordinator.Device{ID: id, NUMA: numa, State: "free"})
			pool.Devices = append(pool.Devices, deviceOn(id, topology.Address{}, numa))
		}
		if kind == device.GPU {
			n.GPUs = pool.Devices
		} else {
			n.VFs = append(n.VFs, pool)
		}
		status.Resources = append(status.Resources, r)
	}
	n.status.Resources = status.Resources
	for name, c := range map[string]struct {
		scope      string
		containers []map[string]int
	}{
		"VFs of one of two pools":   {"container", []map[string]int{{"a.com/gpu": 8, "a.com/x": 8}}},
		"two containers, scope pod": {"pod", []map[string]int{{"a.com/gpu": 4, "a.com/x": 4}, {"a.com/gpu": 5}}},
		"two containers":            {"container", []map[string]int{{"a.com/gpu": 6}, {"a.com/gpu": 6}}},
		"init container":            {"container", []map[string]int{{"a.com/gpu": 6}, {"a.com/gpu": 6}}},
	} {
		n.settings = &settings{}
		n.settings.Policy, n.settings.Scope = restricted, c.scope
		pod := &corev1.Pod{}
		for _, requests := range c.containers {
			limits := corev1.ResourceList{}
			for resourceName, count := range requests {
				limits[corev1.ResourceName(resourceName)] = *resource.NewQuantity(int64(count), resource.DecimalSI)
			}
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
				Resources: corev1.ResourceRequirements{Limits: limits, Requests: limits},
			})
		}
		if name == "init container" {
			pod.Spec.InitContainers, pod.Spec.Containers = pod.Spec.Containers[:1], pod.Spec.Containers[1:]
		}
		explained := coordinator.ExplainRejection(pod, status, kubelet.Reading[[]coordinator.Decision]{},
			kubelet.Read(n.settings.Settings, nil))
		var pods RefusedPods
		pods.Add(pod)
		n.Refused.Pods = RefusedPods{}
		if err := n.Refused.Pods.Set(pods.Flags()[0]); err != nil { // as kubectl tandem doctor hands pods over
			t.Fatal(err)
		}
		if f := n.judgeRefused(); (f.always == 0) != explained.FitsEmpty {
			t.Errorf("%s: %s; explain: the empty node admits it: %v", name, f.shapes, explained.FitsEmpty)
		}
	}
}
