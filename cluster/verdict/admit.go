// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"errors"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/coordination/preference"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// trial is the admission of a pod: what the device manager leaves to others.
type trial struct {
	devicemanager.Admission
	node     *Node
	wishes   *wishes
	got      devicemanager.Set // by this pod
	given    []given
	managers Given
	heirs    int // containers that came since init containers have left something
	chance   bool
	plan     plan
}

// plan is the choice for a container, and what it was made from.
type plan struct {
	container int
	halves    []preference.Half
	chosen    devicemanager.Set
}

// admit tries to admit a pod. Without all, the devices of the last container are chosen only where Tandem may
// refuse them. The refusal is nil for a pod that is admitted.
func (s *State) admit(w *wishes, all bool) (*trial, *devicemanager.Refusal) {
	sets := s.node.devices.NewSets(3)
	copy(sets[0], s.taken)
	t := &trial{
		Admission: devicemanager.Admission{
			Node: s.node.devices, Kubelet: s.node.kubelet, Containers: w.requests, Managed: s.managers != nil,
			VerdictOnly: !all && !w.required,
			Healthy:     s.node.healthy, Taken: sets[0], Reusable: sets[1],
		},
		node: s.node, wishes: w, got: sets[2], managers: s.managers,
	}
	t.Others = t
	if t.managers != nil {
		t.managers = t.managers.Clone()
	}
	return t, t.Admit()
}

// Hints are those of the CPU and memory managers.
func (t *trial) Hints(container int) []hints.List {
	var c *v1.Container
	if container >= 0 {
		c = t.wishes.containers[container]
	}
	return t.managers.Hints(t.wishes.pod, c)
}

// Prefer answers as the coordinator does that knows what the container asks for. It keeps to its choice where
// the kubelet offers what the choice was made from.
func (t *trial) Prefer(container int, q devicemanager.Question) devicemanager.Set {
	all := t.Node.Resources[q.Resource].All
	if t.plan.container == container && t.plan.foresees(&q) {
		return t.plan.chosen.Intersection(all)
	}
	taken := t.Taken.Difference(t.Reusable)
	view := preference.View{
		Node: t.Node, Links: t.node.links, Free: t.Healthy.Difference(t.Taken).Difference(q.Given), Taken: taken,
		Given: q.Given, Left: t.Reusable,
	}
	halves := view.Halves(&q, t.Containers[container].Requests, nil)
	choice, err := placement.Choose(t.node.tree, view.Placement(halves))
	if err != nil {
		return q.Must // cannot be: the device manager has made sure that there are enough
	}
	t.plan = plan{container, halves, t.Node.Chosen(choice)}
	return t.plan.chosen.Intersection(all)
}

func (p *plan) foresees(q *devicemanager.Question) bool {
	for _, h := range p.halves {
		if h.Resource == q.Resource {
			return h.Held.Equal(q.Must) && h.Free.Equal(q.Free)
		}
	}
	return false
}

// Pick is chance: what the kubelet takes of more devices than it needs.
func (t *trial) Pick(of devicemanager.Set, count int) devicemanager.Set {
	t.chance = true
	return of.Lowest(count)
}

// Allocate refuses a container whose alignment is required and whose pairs are apart, and gives it CPUs and
// memory.
func (t *trial) Allocate(container int, best hints.Hint, devices devicemanager.Set) error {
	requests := t.Containers[container].Requests
	t.inherit(requests)
	if t.wishes.required && requests.Pairs(t.Node) > 0 {
		if err := t.misaligned(devices); err != nil {
			return err
		}
	}
	c := t.wishes.containers[container]
	if t.managers != nil {
		if err := t.managers.Take(t.wishes.pod, c, best); err != nil {
			return err
		}
	}
	t.got.Include(devices)
	if len(requests) > 0 {
		t.given = append(t.given, given{name: c.Name, nodes: best.Nodes, devices: devices})
	}
	return nil
}

// inherit notes that a container comes which may take over from init containers.
func (t *trial) inherit(requests devicemanager.Requests) {
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

// errMisaligned is Tandem's refusal of a container whose alignment is required and whose pairs are not on one
// switch each (coordination/admission, refusal.go).
type errMisaligned struct{ error }

func (t *trial) misaligned(devices devicemanager.Set) error {
	pairs := placement.PairsOf(t.node.tree,
		t.Node.Devices(devices.Intersection(t.Node.OfKind[devicemanager.GPU])),
		t.Node.Devices(devices.Intersection(t.Node.OfKind[devicemanager.VF])))
	if together := placement.Together(pairs); together < len(pairs) {
		return errMisaligned{errApart(together, len(pairs))}
	}
	return nil
}

// required reports whether Tandem refuses a pod that the kubelet would admit.
func required(r *devicemanager.Refusal) bool {
	var misaligned errMisaligned
	return errors.As(r.Err, &misaligned)
}

// held is what the pod has then.
func (t *trial) held() *pod {
	return &pod{uid: t.wishes.pod.UID, containers: t.given, all: t.got}
}
