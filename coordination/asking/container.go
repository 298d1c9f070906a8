package asking

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/coordination/holders"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// Container is one in admission, with what the kubelet has given it so far. It never changes.
type Container struct {
	ID      int // tells it from those before; 0 while it has no devices
	Asker   *Asker
	Owner   *kubelet.Container // as PodResources shows it; nil while it does not
	Pods    []kubelet.Pod      // of which one is its own; nil where nothing tells
	Devices kubelet.Devices    // that it was given
	Newest  string             // resource of the newest Allocate; "" while it has no devices
	// what its pod's init containers leave it, as far as it is known
	Inherits kubelet.Devices

	Looked bool // PodResources was read before its first device was given
	// the kubelet had no choice for its first devices: they were all that was free on its nodes
	Unasked bool
	// its second half was asked for though nothing shows that its container lives: the kubelet can have failed
	// it, and have asked for another one
	Guessed bool
	Shown   bool // PodResources has shown it with what it has, when it was asked for more
}

// Given is the container with devices of a resource, which the kubelet gave it.
func (c Container) Given(name string, ids []string) Container {
	next := maps.Clone(c.Devices)
	if next == nil {
		next = kubelet.Devices{}
	}
	next[name] = ids
	c.Devices, c.Newest = next, name
	return c
}

// In returns the container as a look shows it, with the owner of its devices. If the look shows another pod
// than the likeliest of several that a source told of, the container has no asker any more. Devices of an
// earlier container that only seemed to be its other half are dropped.
func (c *Container) In(view *kubelet.View) *Container {
	if c == nil || view == nil {
		return c
	}
	owner, shown := c.ownerIn(*view)
	if !shown {
		return c
	}
	has := view.Containers[owner]
	own, rest := c.split(has)
	switch {
	case len(rest) > 0 && len(has[c.Newest]) > 0:
		return &Container{Owner: &owner, Devices: own, Newest: c.Newest, Unasked: true}
	case len(rest) > 0:
		return &Container{Devices: rest, Newest: c.Newest, Unasked: true}
	}
	next := *c
	if next.Owner = &owner; c.Asker != nil && c.Asker.Pod != owner.Pod {
		next.Asker = nil
	}
	return &next
}

// ownerIn returns the container that a look shows with devices of c: with those of the newest Allocate if
// there is one, else the first by resource and name.
func (c *Container) ownerIn(view kubelet.View) (owner kubelet.Container, shown bool) {
	for _, name := range append([]string{c.Newest}, slices.Sorted(maps.Keys(c.Devices))...) {
		if owner, _, shown = view.HolderOf(name, c.Devices[name]); shown {
			return owner, true
		}
	}
	return kubelet.Container{}, false
}

// split divides the devices of c by resource: own if an owner is shown with any devices of the resource, rest
// if it is not.
func (c *Container) split(shown kubelet.Devices) (own, rest kubelet.Devices) {
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

// Lacks reports whether a container was given nothing of a resource.
func (c *Container) Lacks(name string) bool { return len(c.Devices[name]) == 0 }

// Has reports whether a device is a container's own, or one that it takes over.
func (c *Container) Has(name, id string) bool {
	return slices.Contains(c.Devices[name], id) || slices.Contains(c.Inherits[name], id)
}

// HasAny reports whether a container was given any of some devices.
func (c *Container) HasAny(devices kubelet.Devices) bool {
	for name, ids := range devices {
		if slices.ContainsFunc(ids, func(id string) bool { return slices.Contains(c.Devices[name], id) }) {
			return true
		}
	}
	return false
}

// Complete reports whether a container has all that it asks for, of resources that are ours.
func (c *Container) Complete(ours func(name string) bool) bool {
	for name, count := range c.Asker.Requests {
		if ours(name) && len(c.Devices[name]) != count {
			return false
		}
	}
	return true
}

// Identified reports whether the pod of a container is known.
func (c *Container) Identified() bool { return c.Owner != nil || len(c.Pods) == 1 }

// Likely is the name of a container, nil while it is not known.
func (c *Container) Likely() *kubelet.Container {
	if c.Asker == nil || len(c.Pods) > 1 {
		return c.Owner
	}
	name := c.Asker.Container()
	return &name
}

// Name names a container, for people.
func (c *Container) Name() string {
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

// half says which part of a container's devices is asked for.
func (c *Container) half() string {
	switch {
	case len(c.Devices) > 0:
		return SecondHalf
	case len(c.Inherits) > 0:
		return TakesOver
	default:
		return FirstHalf
	}
}

// shownBy reports whether a view shows a container with at least one of the devices.
func (c *Container) shownBy(view kubelet.View, as kubelet.Container) bool {
	return c.HasAny(view.Containers[as])
}

// Asker is a container as a source of intent tells it: which one it is, and what it is to get.
type Asker struct {
	Source    intent.Source
	Pod       kubelet.Pod
	UID       string // of the pod
	Created   time.Time
	Alignment intent.Alignment // "" where the pod says nothing
	Index     int              // of the container among those of its pod
	Name      string
	Requests  map[string]int // for resources that a plugin has announced
	CPUs      int            // that it wants alone
	// the containers of the pod before it, and whether each is an init container
	Before     []string
	BeforeInit []bool
	// what it wants is certain; else other containers that want something else may be the one
	Exact bool
	// of which one is its own: that of every container that may be the one
	Pods []kubelet.Pod

	Chosen  []string // the devices that a scheduler chose
	Remarks []string // what of the annotations could not be read, for people
}

// Container is its name.
func (a *Asker) Container() kubelet.Container { return kubelet.Container{Pod: a.Pod, Name: a.Name} }

// Is reports whether two are the same container of the same pod. Nobody is nobody.
func (a *Asker) Is(other *Asker) bool {
	return a != nil && other != nil && a.UID == other.UID && a.Container() == other.Container()
}

// continues reports whether a container, to which a question adds by the order of the questions,
// is the one that
// got the newest Allocate, and can be that of an asker, of which no source told then.
func (c *Container) continues(newest *Container, asker *Asker) bool {
	return c != nil && c.ID == newest.ID && newest.Asker == nil && asker.wantsAll(newest.Devices) &&
		(c.Owner == nil || *c.Owner == asker.Container())
}

// asksOtherThan reports whether a container that is certain asks for another number of devices than a
// question.
func (a *Asker) asksOtherThan(q Question) bool {
	return a != nil && a.Exact && a.Requests[q.Resource] != q.Size
}

// isOf reports whether a holder is the container.
func (a *Asker) isOf(h holders.Holder) bool {
	if h.Name != a.Name {
		return false
	}
	return h.UID == a.UID || h.UID == "" && h.Pod == a.Pod
}

// wantsAll reports whether a container asks for all the resources of which devices are.
func (a *Asker) wantsAll(devices kubelet.Devices) bool {
	for name := range devices {
		if a.Requests[name] == 0 {
			return false
		}
	}
	return true
}

// describe says who asks and for what, for people.
func (a *Asker) describe() string {
	var wants []string
	for _, name := range slices.Sorted(maps.Keys(a.Requests)) {
		wants = append(wants, fmt.Sprintf("%d %s", a.Requests[name], name))
	}
	text := a.Container().String() + " wants " + strings.Join(wants, ", ")
	if !a.Exact {
		text += " (the likeliest of several containers)"
	}
	return strings.Join(append([]string{text}, a.Remarks...), "; ")
}
