// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// trial is the admission of a pod: the part outside the device manager.
type trial struct {
	devicemanager.Admission
	node     *Node
	requests *podRequests
	got      devicemanager.Set // by this pod
	assigned []containerDevices
	managers ManagerState
	heirs    int // containers that could reuse devices of init containers
	chance   bool
	plan     plan
}

// plan is the choice for a container, with its input.
type plan struct {
	container int
	halves    []devicemanager.Half
	chosen    devicemanager.Set
}

// Hints returns the hints of the CPU and memory managers.
func (t *trial) Hints(container int) []model.Hints {
	var c *v1.Container
	if container >= 0 {
		c = t.requests.containers[container]
	}
	return t.managers.Hints(t.requests.pod, c)
}

// Prefer answers like the coordinator if it knows the request of the container. While the kubelet offers the
// input of the last choice, Prefer keeps this choice.
func (t *trial) Prefer(container int, q devicemanager.Question) devicemanager.Set {
	all := t.Node.Resources[q.Resource].All
	if t.plan.container == container && t.plan.isForeseen(&q) {
		return t.plan.chosen.Intersection(all)
	}
	taken := t.Taken.Difference(t.Reusable)
	view := devicemanager.View{
		Node: t.Node, Links: t.node.links, Kubelet: t.Kubelet,
		Free: t.Healthy.Difference(t.Taken).Difference(q.Allocated), Taken: taken,
		Allocated: q.Allocated, Left: t.Reusable,
	}
	halves := view.Halves(&q, t.Containers[container].Requests, nil)
	choice, err := placement.Choose(t.node.tree, view.Placement(halves))
	if err != nil {
		return q.Must // cannot be: the device manager has checked the number of devices
	}
	t.plan = plan{container, halves, t.Node.Chosen(choice)}
	return t.plan.chosen.Intersection(all)
}

func (p *plan) isForeseen(q *devicemanager.Question) bool {
	for _, h := range p.halves {
		if h.Resource == q.Resource {
			return h.Held.Equal(q.Must) && h.Free.Equal(q.Free)
		}
	}
	return false
}

// Pick stands for the random choice of the kubelet from more devices than necessary.
func (t *trial) Pick(of devicemanager.Set, count int) devicemanager.Set {
	t.chance = true
	return of.Lowest(count)
}

// Allocate rejects a container with required alignment and separated pairs, and assigns CPUs and memory to
// any other container.
func (t *trial) Allocate(container int, best model.Hint, devices devicemanager.Set) error {
	requests := t.Containers[container].Requests
	t.noteHeir(requests)
	if t.requests.required && t.Node.Pairs(requests) > 0 {
		if err := t.checkAligned(devices); err != nil {
			return err
		}
	}
	c := t.requests.containers[container]
	if t.managers != nil {
		if err := t.managers.Take(t.requests.pod, c, best); err != nil {
			return err
		}
	}
	t.got.Include(devices)
	if len(requests) > 0 {
		t.assigned = append(t.assigned, containerDevices{name: c.Name, nodes: best.Nodes, devices: devices})
	}
	return nil
}

// noteHeir records a container that may reuse devices of init containers.
func (t *trial) noteHeir(requests model.Requests) {
	if len(requests) == 0 || t.Reusable.Len() == 0 {
		return
	}
	t.heirs++
	for _, r := range requests {
		if t.heirs > 1 && r.Count > 0 && t.Reusable.Common(t.Node.Resources[r.Resource].All) > 0 {
			t.chance = true
		}
	}
}

// errMisaligned is Tandem's rejection of a container with required alignment and a pair that is not on one
// switch (coordination/admission, alignment.go).
type errMisaligned struct{ error }

func (t *trial) checkAligned(devices devicemanager.Set) error {
	pairs := placement.PairsOf(t.node.tree, t.Node.Split(devices))
	if together := placement.Together(pairs); together < len(pairs) {
		return errMisaligned{fmt.Errorf("only %d of %d pairs can be on one switch and %s", together, len(pairs),
			t.whoRequires())}
	}
	return nil
}

// whoRequires returns the origin of the requirement: the pod, or the administrator.
func (t *trial) whoRequires() string {
	if _, annotated := t.requests.pod.Annotations[intent.AlignmentKey]; annotated {
		return fmt.Sprintf("the pod has annotation %s: %s", intent.AlignmentKey, intent.Required)
	}
	return fmt.Sprintf("the node's plugins ask that of every pod (--alignment=%s)", intent.Required)
}

// isByTandem reports whether Tandem rejects a pod that the kubelet would admit.
func isByTandem(r *devicemanager.Refusal) bool {
	var misaligned errMisaligned
	return errors.As(r.Err, &misaligned)
}

// heldDevices returns the devices of the admitted pod.
func (t *trial) heldDevices() *podDevices {
	return &podDevices{uid: t.requests.pod.UID, containers: t.assigned, all: t.got}
}

// podRequests are the device manager's view of a pod.
type podRequests struct {
	pod        *v1.Pod
	containers []*v1.Container   // in the order of admission, including containers without devices
	requests   []model.Container // of each container
	required   bool              // alignment is required
	with       int               // containers with devices
	pairs      int
}

// Concerns reports whether a pod gets exclusive devices, CPUs or memory on admission, so that the object then
// lists the pod. A pod with a request for 0 devices, or with a ResourceClaim from the scheduler for its
// devices, holds nothing.
func (n *Node) Concerns(pod *v1.Pod) bool {
	for c := range intent.Containers(pod) {
		for name, quantity := range intent.Limits(pod, c) {
			if _, ours := n.devices.Resource(name); ours && quantity.Value() > 0 {
				return true
			}
		}
	}
	return n.managers != nil && n.managers.Concerns(pod)
}

// readPod reads a pod.
func (n *Node) readPod(pod *v1.Pod) *podRequests {
	count := len(pod.Spec.InitContainers) + len(pod.Spec.Containers)
	alignment, _ := n.alignment.AlignmentOf(pod.Namespace, pod.Annotations) // unknown values count as required
	w := &podRequests{
		pod: pod, required: alignment == intent.Required,
		containers: make([]*v1.Container, 0, count), requests: make([]model.Container, 0, count),
	}
	for c, role := range intent.Containers(pod) {
		requests := n.readRequests(pod, c)
		w.with += min(len(requests), 1)
		w.pairs += n.devices.Pairs(requests)
		w.containers = append(w.containers, c)
		w.requests = append(w.requests, model.Container{Role: role, Requests: requests})
	}
	return w
}

// readRequests returns the requests of a container. Resources with NUMA nodes come first; the kubelet uses a
// random order.
func (n *Node) readRequests(pod *v1.Pod, c *v1.Container) model.Requests {
	var requests model.Requests
	for name, quantity := range intent.Limits(pod, c) {
		if i, ours := n.devices.Resource(name); ours {
			if requests == nil {
				requests = make(model.Requests, 0, 2)
			}
			requests = append(requests, model.Request{Resource: i, Count: int(quantity.Value())})
		}
	}
	unhinted := func(r model.Request) int {
		if n.devices.Resources[r.Resource].Hinted {
			return 0
		}
		return 1
	}
	slices.SortFunc(requests, func(a, b model.Request) int {
		return cmp.Or(unhinted(a)-unhinted(b), a.Resource-b.Resource)
	})
	return requests
}
