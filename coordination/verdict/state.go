// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"encoding/binary"
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
)

// State is the assignment of a node's devices to pods. Not safe for concurrent use.
type State struct {
	node     *Node
	pods     map[types.UID]*podDevices
	taken    devicemanager.Set
	managers ManagerState // may be nil
	err      error        // of the managers, which are then ignored
}

// State returns the assignments of the published object to pods that are present: the object also lists the
// devices of a pod that has ended, until the kubelet reuses the devices.
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
	return &State{node: n, pods: make(map[types.UID]*podDevices, len(n.held)+1), taken: n.devices.NewSet()}
}

func (s *State) manage(held []v1alpha1.Held) {
	if s.node.managers != nil {
		s.managers, s.err = s.node.managers.Restore(held)
	}
}

// Err returns the reason why the managers are ignored, otherwise nil.
func (s *State) Err() error { return s.err }

// Clone returns an independent copy.
func (s *State) Clone() *State {
	c := *s
	c.pods, c.taken = maps.Clone(s.pods), s.taken.Clone()
	if s.managers != nil {
		c.managers = s.managers.Clone()
	}
	return &c
}

// Holds reports whether a pod has its devices: by the published object, or by Admit.
func (s *State) Holds(uid types.UID) bool { return s.pods[uid] != nil }

// Remove releases the devices, CPUs and memory of a pod.
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

// Admit returns the kubelet's verdict on a pod and, if the pod is admitted, assigns devices to all
// containers. A pod with devices keeps these devices.
func (s *State) Admit(pod *v1.Pod) Verdict {
	w := s.node.read(pod)
	if held := s.pods[pod.UID]; held != nil {
		return s.node.verdict(w, held.containers)
	}
	t, refusal := s.admit(w, true)
	if refusal != nil {
		return s.refused(w, t, refusal)
	}
	v := s.node.verdict(w, t.assigned)
	v.Chance = t.chance
	s.pods[pod.UID] = t.held()
	s.taken.Include(t.got)
	s.managers = t.managers
	return v
}

// Ask returns the kubelet's verdict on a pod and assigns nothing. Ask chooses devices only if the verdict
// depends on the choice, and leaves Pairs and Containers empty. Ask takes a fraction of the time of Admit.
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

// admit tries to admit a pod. If all is false, the devices of the last container are chosen only if Tandem
// may reject the choice. The refusal is nil for an admitted pod.
func (s *State) admit(w *podRequests, all bool) (*trial, *devicemanager.Refusal) {
	sets := s.node.devices.NewSets(3)
	copy(sets[0], s.taken)
	t := &trial{
		Admission: devicemanager.Admission{
			Node: s.node.devices, Kubelet: s.node.kubelet, Containers: w.requests, Managed: s.managers != nil,
			VerdictOnly: !all && !w.required,
			Healthy:     s.node.healthy, Taken: sets[0], Reusable: sets[1],
		},
		node: s.node, requests: w, got: sets[2], managers: s.managers,
	}
	t.Others = t
	if t.managers != nil {
		t.managers = t.managers.Clone()
	}
	return t, t.Admit()
}

// verdict returns the verdict on an admitted pod with the devices of its containers.
func (n *Node) verdict(w *podRequests, containers []containerDevices) Verdict {
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

// refused returns the verdict on a rejected pod.
func (s *State) refused(w *podRequests, t *trial, refusal *devicemanager.Refusal) Verdict {
	v := Verdict{Required: required(refusal), Chance: t.chance, Wanted: w.pairs}
	empty := s.node.empty()
	if s.managers != nil {
		empty.managers = s.node.managers.Empty()
	}
	onEmpty, always := empty.admit(w, false)
	v.Never = always != nil
	// With required alignment the kubelet reports the shortage or the separated pairs, depending on its order.
	if v.Never && always.Err == nil && !w.required && t.shortage(refusal) != nil {
		t, refusal = onEmpty, always
	}
	v.Reason = t.reason(refusal, v.Never)
	return v
}

// Same returns a key for states of nodes whose objects differ only in the held devices: states with equal
// keys have equal verdicts on every pod without devices. With managers the key is "", which means unknown.
func (s *State) Same() string {
	if s.managers != nil {
		return ""
	}
	text := make([]byte, 0, 8*len(s.taken))
	for _, word := range s.taken {
		text = binary.LittleEndian.AppendUint64(text, word)
	}
	return string(text)
}
