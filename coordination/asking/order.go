package asking

import (
	"slices"
	"time"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// FollowWindow is how soon after an Allocate the same container's next question comes: the kubelet does
// nothing slow in between (0.3 ms were measured on two busy cores), while another pod has to be set up first.
// Within it a question that a plan foresees needs no look; and it tells two containers apart
// where neither the kubelet's checkpoint nor PodResources does.
const FollowWindow = time.Millisecond

// Seen is what the last look at PodResources has shown. It never changes.
type Seen struct {
	Looked     bool   // there was one
	Life       string // of the kubelet that answered
	Pods       map[kubelet.Pod]bool
	Containers map[kubelet.Container]kubelet.Devices
	// the pods that were new when last some were: one of them is, or was last, being admitted. The kubelet lists
	// a pod from just before its admission
	Arrived []kubelet.Pod
}

// With is what is known after one more look.
func (s Seen) With(view *kubelet.View) Seen {
	if view == nil {
		return s
	}
	return s.with(*view)
}

func (s Seen) with(view kubelet.View) Seen {
	next := Seen{true, view.Life, map[kubelet.Pod]bool{}, view.Containers, s.Arrived}
	for _, pod := range view.Pods {
		next.Pods[pod] = true
	}
	if arrived := s.arrivals(view); len(arrived) > 0 {
		next.Arrived = arrived
	}
	return next
}

// arrivals lists the pods that the last look did not show, and those that have been deleted and created anew
// under their name: running containers never lose a device.
func (s Seen) arrivals(view kubelet.View) (arrived []kubelet.Pod) {
	renewed := map[kubelet.Pod]bool{}
	for c, devices := range s.Containers {
		for name, ids := range devices {
			if len(ids) > 0 && !slices.Contains(view.Containers[c][name], ids[0]) {
				renewed[c.Pod] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(view.Pods), func(p kubelet.Pod) bool {
		return s.Pods[p] && !renewed[p]
	})
}

// following finds the container to which the question adds by the order of the questions, nil where it starts
// anew; and why.
func (e *Evidence) following(q Question) (*Container, string) {
	if len(q.MustInclude) > 0 {
		return e.takingOver(q)
	}
	var arrived []kubelet.Pod
	if e.View != nil {
		arrived = e.Seen.arrivals(*e.View)
		if open := e.unwritten(q.Resource); open != nil {
			return open, SecondHalf + " of " + open.Name()
		}
	}
	follows, why := e.follows(q, arrived)
	if !follows {
		return nil, why
	}
	return e.Newest, why
}

// takingOver finds the container that takes over from init containers of its pod: that of the newest
// Allocate, or one that has nothing else yet.
func (e *Evidence) takingOver(q Question) (*Container, string) {
	if n := e.Newest; n != nil && e.Progress != Complete && n.Lacks(q.Resource) {
		return n, TakesOver
	}
	of := e.Holders.Of(q.Resource, q.MustInclude[0])
	if len(of) == 0 {
		return nil, FirstHalf
	}
	c := &Container{Inherits: kubelet.Devices{}, Looked: true}
	if of[0].Pod != (kubelet.Pod{}) {
		c.Pods = []kubelet.Pod{of[0].Pod}
	}
	for _, h := range of {
		for name, ids := range e.Resources.Only(h.Devices) {
			c.Inherits[name] = append(c.Inherits[name], ids...)
		}
	}
	for _, h := range e.Holders { // what other containers of the pod have is theirs
		same := h.UID == of[0].UID && h.Pod == of[0].Pod && (h.UID != "" || h.Pod != kubelet.Pod{})
		if same && !slices.Contains(h.Devices[q.Resource], q.MustInclude[0]) {
			for name, ids := range h.Devices {
				c.Inherits[name] = without(c.Inherits[name], ids)
			}
		}
	}
	return c, TakesOver
}

// unwritten finds the container that lacks a resource and that PodResources shows with devices which the
// kubelet has not written down: it is the one in admission, whether or not its Allocates were heard of. Nil
// where there is none or, in the kubelet's books as they are, more than one.
func (e *Evidence) unwritten(name string) (open *Container) {
	if !e.Recorded {
		return nil
	}
	for _, h := range e.Holders {
		devices := e.Resources.Only(h.Devices)
		owner := kubelet.Container{Pod: h.Pod, Name: h.Name}
		if _, listed := e.View.Containers[owner]; !h.Open || !listed || len(devices) == 0 {
			continue
		}
		if open != nil {
			return nil
		}
		open = &Container{Owner: &owner, Pods: []kubelet.Pod{h.Pod}, Devices: devices, Looked: true}
		if n := e.Newest; n != nil && n.shownBy(*e.View, owner) {
			of := *n
			of.Owner, of.Pods, of.Devices = &owner, open.Pods, devices
			open = &of
		}
	}
	if open == nil || !open.Lacks(name) {
		return nil
	}
	return open
}

// follows reports whether the container that asks is the one that got the newest Allocate, so that its
// devices are the other half of this request. The second result is the reason, for people.
//
// Arrived are the pods that PodResources newly showed, if it was just read.
func (e *Evidence) follows(q Question, arrived []kubelet.Pod) (bool, string) {
	newest, name, available := e.Newest, q.Resource, q.Available
	switch {
	case newest == nil:
		return false, FirstHalf
	case !newest.Lacks(name), newest.Asker.asksOtherThan(q):
		return false, FirstHalf + ", the next container"
	case !e.Resources.SameNodes(newest.Devices, name, available):
		return false, FirstHalf + ", the next container, on another NUMA node"
	case e.View != nil && newest.Looked && newest.others(arrived) > 0:
		return false, FirstHalf + ", a new pod has come"
	}
	switch e.Progress {
	case Open:
		return true, SecondHalf + " of " + newest.Name()
	case Complete:
		return false, FirstHalf + ", the next container"
	default:
		return e.guess(name, available, arrived)
	}
}

// guess is follows without the kubelet's checkpoint.
func (e *Evidence) guess(name string, available []string, arrived []kubelet.Pod) (bool, string) {
	newest := e.Newest
	nodes := e.Resources.Nodes(name, available)
	switch others := newest.others(arrived); {
	case e.View == nil:
		return e.Recent, "neither checkpoint nor PodResources read, judged by time"
	case others == 0:
		return true, SecondHalf + " of " + newest.Name()
	case others == len(arrived):
		return false, FirstHalf + ", a new pod has come"
	case newest.Unasked && len(nodes) > 0:
		// Both want the same nodes, and the newest allocation took all that was free there. If something is free
		// again, time has passed; if not, a new pod that asks there wants no pair, and following does it no harm.
		return !e.othersFree(newest), "several new pods, judged by what is free"
	default:
		// Nothing was read when the newest allocation began, so the other new pods came either before it (and asked
		// for nothing) or after it (and one of them is asking).
		return e.Recent, "several new pods, judged by time"
	}
}

// others counts the newly shown pods that a container does not explain: its own pod is new too if nothing
// was read before its first device was given.
func (c *Container) others(arrived []kubelet.Pod) int {
	own := 0
	switch {
	case c.Owner != nil && slices.Contains(arrived, c.Owner.Pod),
		c.Owner == nil && !c.Looked && len(arrived) > 0:
		own = 1
	}
	return len(arrived) - own
}

// othersFree reports whether more devices of a container's resources are free on its NUMA nodes.
func (e *Evidence) othersFree(c *Container) bool {
	for name, ids := range c.Devices {
		nodes, held := e.Resources.Nodes(name, ids), e.Holders.Held(name)
		for _, d := range e.Resources[name].Ordered() {
			if n, known := d.NUMA.Number(); known && nodes[n] && d.Healthy && !held[d.ID] {
				return true
			}
		}
	}
	return false
}

// GivenUp reports whether the kubelet has failed the pod of the newest Allocate amid a container: then it
// does not write its checkpoint, which goes on to show that it is not done with that container. A pod in
// admission is shown, by PodResources and by all sources but the API server, which can be behind.
func (e *Evidence) GivenUp() bool {
	c := e.Newest
	switch {
	case c == nil || e.Progress == Complete:
		return false
	case c.Asker == nil:
		return e.View != nil && (e.Progress == Unknown && c.Owner == nil && c.Pods == nil && !e.Recent ||
			c.isGone(*e.View, e.Seen.arrivals(*e.View)))
	case e.Answer != nil && e.Answer.Source != intent.APIServer && c.Asker.Source != intent.APIServer:
		return !slices.ContainsFunc(e.Answer.Pods, func(p intent.Pod) bool { return p.UID == c.Asker.UID })
	case e.succeeded(c.Asker):
		return true
	case e.View != nil:
		return !slices.ContainsFunc(c.Pods, func(p kubelet.Pod) bool { return slices.Contains(e.View.Pods, p) })
	default:
		return false
	}
}

// isGone reports whether a look shows that a container of which no source told has gone: with others, who
// have arrived since the look before, or without its devices.
func (c *Container) isGone(view kubelet.View, arrived []kubelet.Pod) bool {
	lives := func(p kubelet.Pod) bool { return slices.Contains(view.Pods, p) }
	switch {
	case c.Owner != nil:
		return !c.shownBy(view, *c.Owner)
	case len(arrived) == 0:
		return false
	default:
		return slices.ContainsFunc(c.Pods, func(p kubelet.Pod) bool { return !lives(p) })
	}
}

// succeeded reports whether a source tells of another pod of the name, and no more of that pod.
func (e *Evidence) succeeded(to *Asker) (another bool) {
	if e.Answer == nil {
		return false
	}
	for _, p := range e.Answer.Pods {
		if p.UID == to.UID {
			return false
		}
		another = another || p.Pod == to.Pod
	}
	return another
}
