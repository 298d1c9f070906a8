package verdict

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/coordination/intent"
)

// wishes are a pod as the device manager reads it.
type wishes struct {
	pod        *v1.Pod
	containers []wish // in the order of admission, those without devices too
	required   bool   // its alignment
	several    bool   // containers with devices
	wanted     int    // pairs
}

// wish is a container and what it asks for.
type wish struct {
	container *v1.Container
	role      intent.Role
	asked     []ask // in the order of the resources
}

// ask is a number of devices of a resource.
type ask struct {
	resource int
	count    int // 0 where the container names the resource and wants none
}

// Concerns reports whether the kubelet gives a pod something that others cannot have then: whether the object
// shows the pod once the kubelet has admitted it. A pod that asks for 0 devices, or whose devices the
// scheduler backed with a ResourceClaim, holds nothing.
func (n *Node) Concerns(pod *v1.Pod) bool {
	for _, containers := range [...][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if slices.ContainsFunc(n.asked(pod, &containers[i]), func(a ask) bool { return a.count > 0 }) {
				return true
			}
		}
	}
	return n.managers != nil && n.managers.Concerns(pod)
}

// read reads a pod. The device manager goes by limits, which for extended resources equal the requests, and
// passes over those that the scheduler backed with a ResourceClaim (DRA).
func (n *Node) read(pod *v1.Pod) wishes {
	w := wishes{pod: pod, required: pod.Annotations[intent.AlignmentKey] == string(intent.Required)}
	with := 0
	add := func(list []v1.Container, init bool) {
		for i := range list {
			c := wish{container: &list[i], asked: n.asked(pod, &list[i])}
			if init {
				c.role = intent.Init
				if p := c.container.RestartPolicy; p != nil && *p == v1.ContainerRestartPolicyAlways {
					c.role = intent.Sidecar
				}
			}
			with += min(len(c.asked), 1)
			w.wanted += n.wanted(&c)
			w.containers = append(w.containers, c)
		}
	}
	add(pod.Spec.InitContainers, true)
	add(pod.Spec.Containers, false)
	w.several = with > 1
	return w
}

func (n *Node) asked(pod *v1.Pod, c *v1.Container) []ask {
	var asked []ask
	for name, quantity := range c.Resources.Limits {
		if i, ours := n.index[string(name)]; ours && !backedByClaim(pod, c.Name, name) {
			asked = append(asked, ask{i, int(quantity.Value())})
		}
	}
	slices.SortFunc(asked, func(a, b ask) int { return a.resource - b.resource })
	return asked
}

func backedByClaim(p *v1.Pod, container string, name v1.ResourceName) bool {
	claims := p.Status.ExtendedResourceClaimStatus
	return claims != nil && slices.ContainsFunc(claims.RequestMappings,
		func(m v1.ContainerExtendedResourceRequest) bool {
			return m.ContainerName == container && m.ResourceName == string(name)
		})
}

// total is what the Topology Manager asks for under scope pod (PodLimits in k8s.io/component-helpers): the
// containers and sidecars together, or what runs before them where that is more.
func (w *wishes) total() []ask {
	type sum struct{ run, sidecars, before int }
	sums := map[int]sum{}
	for _, c := range w.containers {
		for _, a := range c.asked {
			s := sums[a.resource]
			switch c.role {
			case intent.App:
				s.run += a.count
			case intent.Sidecar:
				s.run += a.count
				s.sidecars += a.count
				s.before = max(s.before, s.sidecars)
			case intent.Init:
				s.before = max(s.before, s.sidecars+a.count)
			}
			sums[a.resource] = s
		}
	}
	var total []ask
	for i, s := range sums {
		total = append(total, ask{i, max(s.run, s.before)})
	}
	slices.SortFunc(total, func(a, b ask) int { return a.resource - b.resource })
	return total
}

// wanted is how many pairs a container asks for.
func (n *Node) wanted(c *wish) int {
	var of [2]int
	for _, a := range c.asked {
		of[n.resources[a.resource].kind] += a.count
	}
	return min(of[gpu], of[vf])
}
