// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
)

// call is an allocation of a resource for a container: the question to the plugin, if the kubelet asks one,
// and the devices.
type call struct {
	resource        string
	asked           bool
	available, must []string
	size            int
	answer          []string
	allocated       []string
}

// trace has the calls of an admission, in order.
type trace struct {
	calls   []call
	shorten func(answer []string) []string // what is left of an answer; nil for all
	short   bool                           // an answer was shortened
}

// ask notes a question, and returns the answer.
func (l *trace) ask(resource string, available, must []string, size int, answer []string) []string {
	if l.shorten != nil && len(answer) > 0 {
		answer = l.shorten(answer)
		l.short = l.short || len(answer) < size
	}
	l.calls = append(l.calls, call{
		resource: resource, asked: true, available: available, must: must, size: size, answer: answer,
	})
	return answer
}

// allocate notes the devices of a container.
func (l *trace) allocate(resource string, ids []string) {
	n := len(l.calls)
	if n == 0 || l.calls[n-1].resource != resource || l.calls[n-1].allocated != nil {
		l.calls = append(l.calls, call{resource: resource})
		n++
	}
	l.calls[n-1].allocated = ids
}

// replay admits on the model a pod that the real managers have admitted. The plugins answer as they did, and
// the CPU and memory managers have the hint that the Topology Manager chose. The questions and the devices of
// all containers have to be the same.
type replay struct {
	t          *testing.T
	node       *devicemanager.Devices
	containers []v1.Container
	calls      [][]call // by container
	real       []devicemanager.Set
	affinity   [][]int
	done       int // containers
	seen       map[string]int
	failed     bool
}

func (j *judged) replay(pod *v1.Pod) {
	r := &replay{
		t: j.t, node: j.world.model(), seen: j.seen,
		containers: slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers),
	}
	calls := j.trace.calls
	var requests []model.Container
	for i, c := range r.containers {
		var role model.Role
		if i < len(pod.Spec.InitContainers) {
			role = model.Init
			if c.RestartPolicy != nil {
				role = model.Sidecar
			}
		}
		n := 0
		for _, count := range wishOf(&c) {
			n += min(count, 1)
		}
		if len(calls) < n {
			j.t.Errorf("container %s: %d calls, want %d", c.Name, len(calls), n)
			return
		}
		requests = append(requests, model.Container{Role: role, Requests: r.requests(&c, calls[:n])})
		r.calls, calls = append(r.calls, calls[:n]), calls[n:]
		r.real = append(r.real, r.held(j.node.Devices(pod, c.Name)))
		r.affinity = append(r.affinity, j.node.Affinity(pod, c.Name))
	}
	a := &devicemanager.Admission{
		Node: r.node, Kubelet: j.world.settings(), Containers: requests, Others: r, Managed: true,
		Healthy: r.node.NewSet(), Taken: r.node.NewSet(), Reusable: r.node.NewSet(),
	}
	for _, o := range j.world.offered {
		for _, d := range o.all {
			if d.Healthy {
				a.Healthy.Include(r.node.Select([]string{d.ID}))
			}
		}
	}
	for _, other := range j.admitted {
		for _, c := range slices.Concat(other.Spec.InitContainers, other.Spec.Containers) {
			a.Taken.Include(r.held(j.node.Devices(other, c.Name)))
		}
	}
	if refusal := a.Admit(); refusal != nil {
		r.fail("the model refuses: %+v", refusal)
	}
	if r.failed {
		j.t.Errorf("%s\n%+v", describe(pod), j.trace.calls)
	}
}

func (r *replay) fail(format string, args ...any) {
	r.t.Helper()
	r.failed = true
	r.t.Errorf(format, args...)
}

// requests are those of a container in the order of the kubelet's calls.
func (r *replay) requests(c *v1.Container, calls []call) model.Requests {
	wish := wishOf(c)
	var requests model.Requests
	add := func(name string) {
		if i, ours := r.node.Resource(name); ours {
			requests = append(requests, model.Request{Resource: i, Count: wish[name]})
			delete(wish, name)
		}
	}
	for _, call := range calls {
		add(call.resource)
	}
	for name := range wish { // 0 of them
		add(name)
	}
	return requests
}

func (r *replay) held(devices map[string][]string) devicemanager.Set {
	held := r.node.NewSet()
	for _, ids := range devices {
		held.Include(r.node.Select(ids))
	}
	return held
}

// Hints is what the Topology Manager has made of all.
func (r *replay) Hints(container int) []model.Hints {
	var nodes model.Mask
	for _, n := range r.affinity[max(container, 0)] {
		nodes |= 1 << n
	}
	if nodes == 0 {
		return nil
	}
	return []model.Hints{{{Nodes: nodes, Preferred: true}}}
}

// Prefer compares the question and gives the plugin's answer.
func (r *replay) Prefer(container int, q devicemanager.Question) devicemanager.Set {
	name := r.node.Resources[q.Resource].Name
	i := slices.IndexFunc(r.calls[container], func(c call) bool { return c.resource == name && c.asked })
	if i < 0 {
		r.fail("container %d: the model asks for %s, the kubelet does not", container, name)
		return q.Free
	}
	c := &r.calls[container][i]
	c.asked = false
	got := fmt.Sprintln(q.Size, q.Available(), q.Must)
	if want := fmt.Sprintln(c.size, r.node.Select(c.available), r.node.Select(c.must)); got != want {
		r.fail("container %d, question to the plugin of %s (-kubelet +model):\n%s", container, name,
			cmp.Diff(want, got))
	}
	switch {
	case len(c.answer) < c.size:
		r.seen["answer filled up"]++
	case len(c.must) > 0:
		r.seen["asked to complete"]++
	default:
		r.seen["asked"]++
	}
	return r.node.Select(c.answer)
}

// Pick picks what the kubelet has picked.
func (r *replay) Pick(of devicemanager.Set, count int) devicemanager.Set {
	picked := of.Intersection(r.real[r.done])
	if picked.Len() != count {
		r.fail("container %d: the kubelet has picked %d devices, want %d", r.done, picked.Len(), count)
		return of.Lowest(count)
	}
	return picked
}

// Allocate compares the devices of a container.
func (r *replay) Allocate(container int, best model.Hint, devices devicemanager.Set) error {
	if !devices.Equal(r.real[container]) {
		r.fail("container %d: devices %x, the kubelet's %x", container, devices, r.real[container])
	}
	if nodes := r.affinity[container]; len(nodes) > 0 && !slices.Equal(best.Nodes.Numbers(), nodes) {
		r.fail("container %d: NUMA nodes %v, the kubelet's %v", container, best.Nodes.Numbers(), nodes)
	}
	for _, c := range r.calls[container] {
		if c.asked {
			r.fail("container %d: the kubelet asks for %s, the model does not", container, c.resource)
		}
	}
	r.done++
	return nil
}

// model is the machine's devices as the model has them.
func (w *judgedWorld) model() *devicemanager.Devices {
	var announced []model.Resource
	for _, o := range w.offered {
		a := model.Resource{Name: o.name}
		if o.kind == device.VF {
			a.Kind = model.VF
		}
		for _, d := range o.all {
			a.Devices = append(a.Devices, model.Device{Device: d.Placed(), NUMA: d.NUMA})
		}
		announced = append(announced, a)
	}
	return devicemanager.NewDevices(announced)
}

// settings are those of the kubelet.
func (w *judgedWorld) settings() model.TopologyManager {
	k := model.TopologyManager{
		Rule:     model.Rule{Policy: model.Policy(w.kubelet.TopologyManagerPolicy)},
		ScopePod: w.kubelet.TopologyManagerScope == "pod",
	}
	for _, n := range w.numa {
		k.Rule.Machine |= 1 << n.ID
	}
	return k
}
