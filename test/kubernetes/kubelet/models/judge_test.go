// SPDX-License-Identifier: Apache-2.0

package models_test

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/test/model"
	"github.com/tandem-k8s/tandem/test/model/topologymanager"
)

// judge admits pods on the model of package test/model, after the real kubelet.
type judge struct {
	real       *real
	kubelet    *model.Kubelet
	pods       map[types.UID]*model.Pod
	containers []container // of the pod in admission
}

func newJudge(t *testing.T, r *real) *judge {
	t.Helper()
	j := &judge{real: r, pods: map[types.UID]*model.Pod{}}
	k, err := model.New(r.dir+"/model", map[string][]device.Device{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	k.ScopePod, k.Chance = r.world.scope == "pod", j
	k.Topology = topologymanager.Manager{Policy: r.world.policy, Most: r.world.most}
	for _, n := range r.world.numa {
		k.Topology.Nodes = append(k.Topology.Nodes, n.ID)
	}
	if r.world.closest {
		k.Topology.Distances = r.world.byNumber()
	}
	j.kubelet = k
	return j
}

// announce sets the devices of all plugins.
func (j *judge) announce() {
	j.kubelet.Failed = map[string][]device.Device{}
	for _, r := range j.real.world.resources {
		j.kubelet.Devices[r.Name] = nil
		for _, d := range r.Devices {
			if d.Healthy {
				j.kubelet.Devices[r.Name] = append(j.kubelet.Devices[r.Name], d)
			} else {
				j.kubelet.Failed[r.Name] = append(j.kubelet.Failed[r.Name], d)
			}
		}
	}
}

// admit returns the admission of a pod; false for a rejection.
func (j *judge) admit(pod *v1.Pod) ([]container, bool) {
	j.announce()
	p := &model.Pod{}
	p.Namespace, p.Name = pod.Namespace, pod.Name
	for i, c := range node.Containers(pod) {
		p.Containers = append(p.Containers, &model.Container{
			Name: c.Name, Role: roleOf(pod, i), Requests: node.Requests(&c),
		})
	}
	j.containers = make([]container, len(p.Containers))
	err := j.kubelet.Admit(p, j)
	for i, c := range p.Containers {
		j.containers[i].Nodes = c.Nodes
	}
	j.pods[pod.UID] = p
	return j.containers, err == nil
}

func (j *judge) remove(pod *v1.Pod) {
	j.kubelet.End(j.pods[pod.UID])
	delete(j.pods, pod.UID)
}

// of returns the number of a container of the pod in admission.
func (j *judge) of(c *model.Container) int {
	return slices.IndexFunc(node.Containers(j.real.pod), func(o v1.Container) bool { return o.Name == c.Name })
}

// Order returns the order of the real kubelet.
func (j *judge) Order(c *model.Container, names []string) { copy(names, j.real.order(j.of(c), names)) }

// Pick returns the devices of the real kubelet.
func (j *judge) Pick(c *model.Container, of []string, count int) []string {
	var picked []string
	for _, a := range j.real.containers[j.of(c)].Allocations {
		for _, id := range a.Devices {
			if slices.Contains(of, id) {
				picked = append(picked, id)
			}
		}
	}
	if len(picked) != count {
		return of[:count]
	}
	return picked
}

// Prefer records the question, and gives the answer of the plugin.
func (j *judge) Prefer(_ *model.Pod, c *model.Container, q model.Question) []string {
	a := &j.containers[j.of(c)]
	a.Allocations = append(a.Allocations, allocation{
		Resource: q.Resource, Asked: true, Size: q.Size,
		Available: slices.Sorted(slices.Values(q.Available)), Must: slices.Sorted(slices.Values(q.MustInclude)),
	})
	return append([]string{}, j.real.answered(j.of(c), q.Resource)...)
}

// Allocate records the devices.
func (j *judge) Allocate(_ *model.Pod, c *model.Container, resource string, ids []string) bool {
	a := &j.containers[j.of(c)]
	if a.of(resource) == nil {
		a.Allocations = append(a.Allocations, allocation{Resource: resource})
	}
	a.of(resource).Devices = slices.Sorted(slices.Values(ids))
	return true
}

// roleOf returns the role of a container.
func roleOf(pod *v1.Pod, i int) model.Role {
	switch {
	case i >= len(pod.Spec.InitContainers):
		return model.App
	case pod.Spec.InitContainers[i].RestartPolicy != nil:
		return model.Sidecar
	default:
		return model.Init
	}
}

// order sorts resources in the order in which a container got them from the real kubelet.
func (r *real) order(container int, names []string) []string {
	position := func(name string) int {
		is := func(a allocation) bool { return a.Resource == name }
		if i := slices.IndexFunc(r.containers[container].Allocations, is); i >= 0 {
			return i
		}
		return len(names)
	}
	return slices.SortedFunc(slices.Values(slices.Sorted(slices.Values(names))), func(a, b string) int {
		return position(a) - position(b)
	})
}

// answered returns the plugin's answer to the real kubelet.
func (r *real) answered(container int, resource string) []string {
	if a := r.containers[container].of(resource); a != nil {
		return a.answer
	}
	return nil
}
