// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// recipient is a container in admission, with the devices allocated so far. A committed recipient is
// immutable.
type recipient struct {
	ID      int // unique among containers in admission; 0 before the first question or Allocate
	Asker   *asker
	Owner   *kubelet.Container // as shown by PodResources; nil if not shown
	Pods    []kubelet.Pod      // candidates for the container's pod; nil if unknown
	Devices kubelet.Devices    // allocated
	Newest  string             // resource of the newest Allocate; "" without devices
	// left by init containers of the pod, as far as known
	Inherits kubelet.Devices

	// Looked means that PodResources was read before the first device was allocated, or that the container
	// began with devices of an init container.
	Looked bool
	// the kubelet allocated the first devices without a question: all free devices on its nodes
	Unasked bool
	// no source shows the container at its second half, and nothing else proves whose that is: the kubelet may
	// have rejected the pod and continued with another container
	Guessed bool
	Shown   bool // PodResources showed the container's devices at the question for more
}

// WithDevices returns the container with devices of a resource added.
func (c recipient) WithDevices(resource string, ids []string) recipient {
	next := maps.Clone(c.Devices)
	if next == nil {
		next = kubelet.Devices{}
	}
	next[resource] = ids
	c.Devices, c.Newest = next, resource
	return c
}

// ShownIn returns the container c as PodResources shows it: with the owner of the devices.
//   - If a request source suggested several pods, and the owner is not the likeliest pod, the result has no
//     asker.
//   - If c has devices of two containers, because the second container seemed to continue the first, the
//     result has only the devices of one.
//   - If the view does not show the devices, or is unknown, the result is c.
func (c *recipient) ShownIn(read kubelet.Reading[kubelet.View]) *recipient {
	view, err := read.Get()
	if c == nil || err != nil {
		return c
	}
	owner, shown := c.ownerIn(view)
	if !shown {
		return c
	}
	has := view.Containers[owner]
	own, rest := c.splitByOwner(has)
	switch {
	case len(rest) > 0 && len(has[c.Newest]) > 0:
		return &recipient{Owner: &owner, Devices: own, Newest: c.Newest, Unasked: true}
	case len(rest) > 0:
		return &recipient{Devices: rest, Newest: c.Newest, Unasked: true}
	}
	next := *c
	next.Owner = &owner
	if c.Asker != nil && c.Asker.Pod != owner.Pod {
		next.Asker = nil
	}
	return &next
}

// ownerIn returns the container that a look shows with devices of c: with those of the newest Allocate if
// there is one, else the first by resource and name.
func (c *recipient) ownerIn(view kubelet.View) (owner kubelet.Container, shown bool) {
	for _, name := range append([]string{c.Newest}, slices.Sorted(maps.Keys(c.Devices))...) {
		owner, _, shown = view.HolderOf(name, c.Devices[name])
		if shown {
			return owner, true
		}
	}
	return kubelet.Container{}, false
}

// splitByOwner divides the devices of c by resource: own if an owner is shown with any devices of the
// resource, rest if it is not.
func (c *recipient) splitByOwner(shown kubelet.Devices) (own, rest kubelet.Devices) {
	own, rest = kubelet.Devices{}, kubelet.Devices{}
	for name, ids := range c.Devices {
		if len(shown[name]) > 0 {
			own[name] = ids
		} else {
			rest[name] = ids
		}
	}
	return own, rest
}

// Lacks reports whether the container has no device of a resource.
func (c *recipient) Lacks(resource string) bool { return len(c.Devices[resource]) == 0 }

// Has reports whether a device is allocated to the container or inherited by the container.
func (c *recipient) Has(resource, id string) bool {
	return slices.Contains(c.Devices[resource], id) || slices.Contains(c.Inherits[resource], id)
}

// forQuestion returns the container as the asker of a question. The kubelet requests all devices of a
// resource at once: an asker with another request was a wrong guess, and the container is unknown.
func (c recipient) forQuestion(q *api.PreferRequest) recipient {
	if c.Asker == nil || c.Asker.Requests[q.GetResource()] == int(q.GetSize()) {
		return c
	}
	c.Asker = nil
	if c.Owner == nil {
		c.Pods = nil
	}
	return c
}

// Complete reports whether the container has all requested devices of our resources.
func (c *recipient) Complete(ours func(name string) bool) bool {
	for name, count := range c.Asker.Requests {
		if ours(name) && len(c.Devices[name]) != count {
			return false
		}
	}
	return true
}

// Identified reports whether the container's pod is known.
func (c *recipient) Identified() bool { return c.Owner != nil || len(c.Pods) == 1 }

// Likely returns the container's name, nil if unknown.
func (c *recipient) Likely() *kubelet.Container {
	if c.Asker == nil || len(c.Pods) > 1 {
		return c.Owner
	}
	name := c.Asker.Container()
	return &name
}

// PodUID returns the UID of the pod of the container's name, "" if unknown.
func (c *recipient) PodUID() string {
	if name := c.Likely(); name == nil || c.Asker == nil || c.Asker.Pod != name.Pod {
		return ""
	}
	return c.Asker.UID
}

// Name returns the container's name for people.
func (c *recipient) Name() string {
	switch {
	case c.Owner != nil:
		return c.Owner.String()
	case c.Asker != nil:
		return c.Asker.Container().String()
	case len(c.Pods) == 1:
		return "a container of " + c.Pods[0].Namespace + "/" + c.Pods[0].Name
	default:
		return "an init container"
	}
}

// describeState returns the state of the container, for people.
func (c *recipient) describeState() string {
	switch {
	case len(c.Devices) > 0:
		return secondHalf
	case len(c.Inherits) > 0:
		return takesOver
	default:
		return firstHalf
	}
}

// continues reports whether the container, identified by the order of the calls, is the container of the
// latest Allocate and compatible with an asker unknown at the time.
func (c *recipient) continues(newest *recipient, asker *asker) bool {
	return c != nil && c.ID == newest.ID && c.Asker == nil && asker.requestsAll(newest.Devices) &&
		(c.Owner == nil || *c.Owner == asker.Container())
}

// shownBy reports whether a view shows at least one of the container's devices with a name.
func (c *recipient) shownBy(view kubelet.View, as kubelet.Container) bool {
	return c.Devices.HasAny(view.Containers[as])
}

// unexplained counts the arrived pods besides the container's own pod, which is new too if PodResources was
// not read before the first device was allocated.
func (c *recipient) unexplained(arrived []kubelet.Pod) int {
	own := 0
	switch {
	case c.Owner != nil && slices.Contains(arrived, c.Owner.Pod),
		c.Owner == nil && !c.Looked && len(arrived) > 0:
		own = 1
	}
	return len(arrived) - own
}
