// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/cluster/v1alpha1"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
)

// State is what the kubelet of a node has given out at a moment. One goroutine at a time may use it.
type State struct {
	node     *Node
	pods     map[types.UID]*pod
	taken    devicemanager.Set
	managers Given // nil without
	err      error // of the managers: then their side is not looked at
}

// State is what pods hold by the published object, of those that are present: the object shows what the
// kubelet gave to a pod until it needs the devices, also when the pod is gone.
func (n *Node) State(present func(uid types.UID) bool) *State {
	s := n.empty()
	var object []v1alpha1.Held
	for i := range n.held {
		if p := &n.held[i]; present(p.uid) {
			s.pods[p.uid] = p
			s.taken.Include(p.all)
			object = append(object, n.object[i])
		}
	}
	s.manage(object)
	return s
}

func (n *Node) empty() *State {
	return &State{node: n, pods: make(map[types.UID]*pod, len(n.held)+1), taken: n.devices.NewSet()}
}

func (s *State) manage(held []v1alpha1.Held) {
	if s.node.managers != nil {
		s.managers, s.err = s.node.managers.Given(held)
	}
}

// Err says why CPUs and memory are not looked at though there are managers; nil where they are.
func (s *State) Err() error { return s.err }

// Clone shares nothing that changes with the original.
func (s *State) Clone() *State {
	c := *s
	c.pods, c.taken = maps.Clone(s.pods), s.taken.Clone()
	if s.managers != nil {
		c.managers = s.managers.Clone()
	}
	return &c
}

// Holds reports whether a pod has been given what it asks for: by the published object, or by Admit.
func (s *State) Holds(uid types.UID) bool { return s.pods[uid] != nil }

// Remove takes everything back from a pod.
func (s *State) Remove(uid types.UID) {
	if s.pods[uid] == nil {
		return
	}
	delete(s.pods, uid)
	clear(s.taken)
	for _, p := range s.pods {
		s.taken.Include(p.all)
	}
	if s.managers != nil {
		s.managers.Remove(uid)
	}
}

// Admit tells what the kubelet says to a pod and, where it admits the pod, gives all its containers their
// devices. A pod that holds something already keeps that.
func (s *State) Admit(pod *v1.Pod) Verdict {
	w := s.node.read(pod)
	if held := s.pods[pod.UID]; held != nil {
		return s.node.verdict(w, held.containers)
	}
	t, refusal := s.admit(w, true)
	if refusal != nil {
		return s.refused(w, t, refusal)
	}
	v := s.node.verdict(w, t.given)
	v.Chance = t.chance
	s.pods[pod.UID] = t.held()
	s.taken.Include(t.got)
	s.managers = t.managers
	return v
}

// Ask tells what the kubelet says to a pod and gives nothing. It chooses devices only where the verdict hangs
// on them, so that Pairs and Containers are not filled in. It takes a fraction of the time of Admit.
func (s *State) Ask(pod *v1.Pod) Verdict {
	w := s.node.read(pod)
	v := Verdict{Admitted: true, Wanted: w.pairs}
	if s.pods[pod.UID] != nil || w.with == 0 && s.managers == nil {
		return v
	}
	t, refusal := s.admit(w, false)
	if refusal != nil {
		return s.refused(w, t, refusal)
	}
	v.Chance = t.chance
	return v
}

// verdict is that on a pod whose containers were given devices.
func (n *Node) verdict(w *wishes, containers []given) Verdict {
	v := Verdict{Admitted: true, Wanted: w.pairs}
	for _, g := range containers {
		c := Container{
			Name: g.name, Nodes: g.nodes, Devices: map[string][]int{}, Pairs: n.switches.Pairs(g.devices),
		}
		for i := range n.devices.Resources {
			r := &n.devices.Resources[i]
			g.devices.Intersection(r.All).Each(func(d int) {
				c.Devices[r.Name] = append(c.Devices[r.Name], d-r.First)
			})
		}
		v.Pairs += c.Pairs
		v.Containers = append(v.Containers, c)
	}
	return v
}

// refused is the verdict on a pod that is refused.
func (s *State) refused(w *wishes, t *trial, refusal *devicemanager.Refusal) Verdict {
	v := Verdict{Required: required(refusal), Chance: t.chance, Wanted: w.pairs}
	empty := s.node.empty()
	if s.node.managers != nil {
		empty.managers = s.node.managers.Empty()
	}
	_, always := empty.admit(w, false)
	v.Never = always != nil
	v.Reason = t.reason(refusal, v.Never)
	return v
}
