// SPDX-License-Identifier: Apache-2.0

package models_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
)

// allocation is the allocation of a resource for a container: the question to the plugin, if the kubelet asks
// one, and the devices.
type allocation struct {
	Resource        string
	Asked           bool
	Available, Must []string
	Size            int
	Devices         []string

	answer []string
}

// container is the result of an admission for a container, with its allocations in the kubelet's order.
type container struct {
	Nodes       []int
	Allocations []allocation
}

// of returns the allocation of a resource; nil for none.
func (c *container) of(resource string) *allocation {
	for i := range c.Allocations {
		if c.Allocations[i].Resource == resource {
			return &c.Allocations[i]
		}
	}
	return nil
}

// real is a node with the managers of the real kubelet.
type real struct {
	t        *testing.T
	world    *world
	dir      string
	node     *node.Node
	admitted []*v1.Pod

	pod        *v1.Pod // in admission
	containers []container
	answer     func(container int, a *allocation) []string // of the plugins
}

func start(t *testing.T, w *world) *real {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "models-") // the kubelet writes a checkpoint for each container
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // if the test fails before stop
	r := &real{t: t, world: w, dir: dir}
	w.most = max(w.most, len(w.numa))
	r.node, err = node.Start(dir, node.Options{
		NUMA: w.numa, Policy: w.policy, Scope: w.scope, PolicyOptions: w.options(),
	})
	if err != nil {
		t.Fatalf("%v: %v", w, err)
	}
	for _, resource := range w.resources {
		if err := r.node.Connect(t.Context(), r.plugin(resource.Name)); err != nil {
			t.Fatal(err)
		}
	}
	r.announce()
	return r
}

func (r *real) stop() {
	if err := r.node.Stop(); err != nil {
		r.t.Error(err)
	}
	os.RemoveAll(r.dir)
}

// announce sends the lists of all plugins.
func (r *real) announce() {
	for _, resource := range r.world.resources {
		r.node.Announce(resource.Name, resource.Devices)
	}
}

// admit admits a pod with these answers of the plugins. The rejection is nil if the pod is admitted.
func (r *real) admit(pod *v1.Pod, answer func(container int, a *allocation) []string) *node.Rejection {
	r.pod, r.answer, r.containers = pod, answer, make([]container, len(node.Containers(pod)))
	err := r.node.Admit(pod)
	for i, c := range node.Containers(pod) {
		r.containers[i].Nodes = r.node.Affinity(pod, c.Name)
	}
	var rejection *node.Rejection
	if errors.As(err, &rejection) {
		r.remove(pod)
		return rejection
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.admitted = append(r.admitted, pod)
	return nil
}

func (r *real) remove(pod *v1.Pod) {
	if err := r.node.Remove(pod); err != nil {
		r.t.Fatal(err)
	}
	r.admitted = slices.DeleteFunc(r.admitted, func(p *v1.Pod) bool { return p == pod })
}

// current returns the number of the container that gets devices: the first without all allocations.
func (r *real) current() int {
	for i, c := range node.Containers(r.pod) {
		for name, count := range node.Requests(&c) {
			if a := r.containers[i].of(name); count > 0 && (a == nil || a.Devices == nil) {
				return i
			}
		}
	}
	panic("each container has its devices")
}

// plugin is a device plugin that records questions and devices.
func (r *real) plugin(resource string) node.Plugin {
	return node.Plugin{
		Name: resource,
		Prefer: func(_ context.Context, available, must []string, size int) ([]string, error) {
			i := r.current()
			a := allocation{
				Resource: resource, Asked: true, Size: size,
				Available: slices.Sorted(slices.Values(available)), Must: slices.Sorted(slices.Values(must)),
			}
			a.answer = r.answer(i, &a)
			r.containers[i].Allocations = append(r.containers[i].Allocations, a)
			return a.answer, nil
		},
		Take: func(_ context.Context, ids []string) error {
			c := &r.containers[r.current()]
			if c.of(resource) == nil {
				c.Allocations = append(c.Allocations, allocation{Resource: resource})
			}
			c.of(resource).Devices = slices.Sorted(slices.Values(ids))
			return nil
		},
	}
}

// held returns the devices of all containers that the kubelet has admitted, by resource.
func (r *real) held() map[string][]string {
	held := map[string][]string{}
	for _, devices := range r.node.Held(r.admitted) {
		for name, ids := range devices {
			held[name] = append(held[name], ids...)
		}
	}
	return held
}
