// Package asking finds out for which container the kubelet asks for devices, or gives them: a pure function
// of what was read.
//
// The kubelet does not say. A container in admission is one whose spec asks for a resource of ours and that
// has none of it yet (identify.go): where a source of intent tells what the pods of the node want (package
// intent) and the kubelet's records who holds what (package holders), that is one container at the most,
// since the kubelet admits one after the other.
//
// Without such a source the order of the questions tells (order.go). The kubelet writes its device checkpoint
// once all resources of a container are allocated, before it turns to the next container. So a question
// belongs to the container of the newest Allocate if, and only if, the checkpoint is still the one of that
// moment. That is exact but for two cases: a change of a plugin's device list writes the checkpoint amid a
// container, and then PodResources shows what the container has; where the kubelet fails a pod amid a
// container it does not write, and then nobody shows the pod any more (GivenUp).
package asking

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/resources"
)

// Progress tells whether the kubelet is done with a container.
type Progress int

// How far the kubelet is.
const (
	Unknown  Progress = iota
	Open              // the container's other resources come next
	Complete          // all its resources are allocated
)

// Question is a GetPreferredAllocation as the kubelet asks it, or an Allocate without one.
type Question struct {
	Resource string
	// free in the kubelet's eyes, on the NUMA nodes it chose; the must-include ones among them
	Available   []string
	MustInclude []string
	Size        int
}

// Offer is a question as package holders looks at it, about devices of a resource.
func (q Question) Offer(r *resources.Resource) holders.Offer {
	offer := holders.Offer{Resource: q.Resource, Available: q.Available, MustInclude: q.MustInclude}
	offered, nodes := map[string]bool{}, map[int]bool{}
	for _, id := range slices.Concat(q.Available, q.MustInclude) {
		offered[id] = true
		if node, known := r.Device(id).NUMA.Number(); known {
			nodes[node] = true
		}
	}
	for _, d := range r.Ordered() {
		if node, known := d.NUMA.Number(); d.Healthy && !offered[d.ID] && (!known || nodes[node]) {
			offer.Withheld = append(offer.Withheld, d.ID)
		}
	}
	return offer
}

// Evidence is all that tells who asks.
type Evidence struct {
	Resources resources.Set
	Holders   holders.Holders
	Recorded  bool       // the kubelet's checkpoint could be read
	Newest    *Container // that got the newest Allocate; nil for none that can be in admission
	Progress  Progress   // of that container
	// its Allocate was so fresh when the question came that this can still be the same container's
	Recent  bool
	View    *kubelet.View  // a look at PodResources; nil where there was none
	Partial bool           // it shows no more than some of the pods
	Answer  *intent.Answer // nil where no source tells
	Seen    Seen           // what the looks before have shown
}

// Asks finds the container that asks, with what it has already.
func (e *Evidence) Asks(q Question) (Container, Knowledge) {
	following, why := e.following(q)
	known := Knowledge{Source: intent.Inference, Why: why}
	if e.View != nil {
		known.Source = intent.PodResources
	}
	var c Container
	if following != nil {
		c = *following
	}
	if e.Answer != nil {
		asker := e.identify(q, e.narrow(e.candidates(q), following))
		if asker == nil {
			known.Why += fmt.Sprintf(" (%s shows no container that lacks %d)", e.Answer.Source, q.Size)
		} else {
			c = e.containerOf(asker, following)
			known.Source, known.Why = e.Answer.Source, c.half()
		}
	}
	if c.Asker == nil && following == e.Newest && following != nil && c.Owner == nil && !c.Looked {
		c.Guessed = true
	}
	c.Shown = e.View != nil && c.Owner != nil && c.shownBy(*e.View, *c.Owner)
	if c.Owner == nil && c.Pods == nil {
		c.Pods = e.possible(c.Asker)
	}
	c.Looked = c.Looked || e.View != nil || len(q.MustInclude) > 0 && following == nil
	known.Asker = c.Asker
	return c, known
}

// Receives finds the container that is given devices without a question; nil where no source of intent tells.
func (e *Evidence) Receives(q Question) *Asker {
	if e.Answer == nil {
		return nil
	}
	return e.identify(q, e.candidates(q))
}

// ContainerOf returns the container of an asker that is given devices of a resource, with its devices so far.
// The container of the newest Allocate is another one if the kubelet is done with it, or has given it devices
// of that resource.
func (e *Evidence) ContainerOf(asker *Asker, resource string) Container {
	following := e.Newest
	if following != nil && (e.Progress == Complete || !following.Lacks(resource)) {
		following = nil
	}
	return e.containerOf(asker, following)
}

// containerOf is the container of an asker with what it has already. Following is the one to which the
// question adds by the order of the questions, nil for none.
func (e *Evidence) containerOf(asker *Asker, following *Container) Container {
	c := Container{Asker: asker, Pods: asker.Pods}
	if n := e.Newest; n != nil && (n.Asker.Is(asker) || following.continues(n, asker)) {
		c = *n
		c.Asker = asker
	}
	has := kubelet.Devices{}
	maps.Copy(has, e.Resources.Only(c.Devices))
	for _, h := range e.Holders {
		if asker.isOf(h) {
			maps.Copy(has, e.Resources.Only(h.Devices))
		}
	}
	c.Devices, c.Inherits = has, e.inheritedBy(asker)
	if shown := asker.Container(); e.View != nil && c.shownBy(*e.View, shown) {
		c.Owner = &shown
	}
	return c
}

// inheritedBy are the devices that the init containers before a container leave to it: the kubelet gives them
// to the next containers of the pod first, and an app container or a sidecar keeps what it gets.
func (e *Evidence) inheritedBy(asker *Asker) kubelet.Devices {
	left := kubelet.Devices{}
	add := func(init bool, change func(have, ids []string) []string) {
		for _, h := range e.Holders {
			i := slices.Index(asker.Before, h.Name)
			if h.UID != asker.UID || i < 0 && h.Name != asker.Name || (i >= 0 && asker.BeforeInit[i]) != init {
				continue
			}
			for name, ids := range e.Resources.Only(h.Devices) {
				left[name] = change(left[name], ids)
			}
		}
	}
	add(true, func(have, ids []string) []string {
		return slices.Compact(slices.Sorted(slices.Values(slices.Concat(have, ids))))
	})
	add(false, without)
	maps.DeleteFunc(left, func(_ string, ids []string) bool { return len(ids) == 0 })
	return left
}

// without returns a list without the elements of another one.
func without(list, others []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(id string) bool { return slices.Contains(others, id) })
}

// possible lists the pods that a container without owner can belong to: nil where nothing tells.
func (e *Evidence) possible(asker *Asker) []kubelet.Pod {
	switch {
	case asker != nil:
		return asker.Pods
	case e.View != nil:
		return e.Seen.with(*e.View).Arrived
	default:
		return nil
	}
}
