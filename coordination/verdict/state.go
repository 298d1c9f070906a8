// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"encoding/binary"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
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
	s := n.emptyState()
	var object []v1alpha1.Held
	for i := range n.held {
		if p := &n.held[i]; present(p.uid) {
			s.pods[p.uid] = p
			s.taken.Include(p.all)
			object = append(object, n.object[i])
		}
	}
	s.restoreManagers(object)
	return s
}

func (n *Node) emptyState() *State {
	return &State{node: n, pods: make(map[types.UID]*podDevices, len(n.held)+1), taken: n.devices.NewSet()}
}

func (s *State) restoreManagers(held []v1alpha1.Held) {
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
	w := s.node.readPod(pod)
	if held := s.pods[pod.UID]; held != nil {
		return s.node.admittedVerdict(w, held.containers)
	}
	t, refusal := s.tryAdmit(w, true)
	if refusal != nil {
		return s.refusedVerdict(w, t, refusal)
	}
	v := s.node.admittedVerdict(w, t.assigned)
	v.Chance = t.chance
	s.pods[pod.UID] = t.heldDevices()
	s.taken.Include(t.got)
	s.managers = t.managers
	return v
}

// Ask returns the kubelet's verdict on a pod and assigns nothing. Ask chooses devices only if the verdict
// depends on the choice, and leaves Pairs and Containers empty. Ask takes a fraction of the time of Admit.
func (s *State) Ask(pod *v1.Pod) Verdict {
	w := s.node.readPod(pod)
	v := Verdict{Admitted: true, Wanted: w.pairs}
	if s.pods[pod.UID] != nil || w.with == 0 && s.managers == nil {
		return v
	}
	t, refusal := s.tryAdmit(w, false)
	if refusal != nil {
		return s.refusedVerdict(w, t, refusal)
	}
	v.Chance = t.chance
	return v
}

// tryAdmit tries to admit a pod. If all is false, the devices of the last container are chosen only if Tandem
// may reject the choice. The refusal is nil for an admitted pod.
func (s *State) tryAdmit(w *podRequests, all bool) (*trial, *devicemanager.Refusal) {
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

// admittedVerdict returns the verdict on an admitted pod with the devices of its containers.
func (n *Node) admittedVerdict(w *podRequests, containers []containerDevices) Verdict {
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

// refusedVerdict returns the verdict on a rejected pod.
func (s *State) refusedVerdict(w *podRequests, t *trial, refusal *devicemanager.Refusal) Verdict {
	v := Verdict{Required: isByTandem(refusal), Chance: t.chance, Wanted: w.pairs}
	empty := s.node.emptyState()
	if s.managers != nil {
		empty.managers = s.node.managers.Empty()
	}
	onEmpty, always := empty.tryAdmit(w, false)
	v.Never = always != nil
	// With required alignment the kubelet reports the shortage or the separated pairs, depending on its order.
	if v.Never && always.Err == nil && !w.required && t.findShortage(refusal) != nil {
		t, refusal = onEmpty, always
	}
	v.Reason = t.describeRefusal(refusal, v.Never)
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

// sizes are the numbers of same-switch pairs for which room is kept, the largest first.
var sizes = [...]int{8, 4, 2, 1}

// Room is, for each of [sizes], the number of containers with that many pairs that the kubelet could admit
// one after the other with all their pairs on one switch each, if no other pods came; at most mostRoom.
type Room [len(sizes)]int

// Less returns the room that is lost if this much of it is left.
func (r Room) Less(left Room) Room {
	for i, kept := range left {
		r[i] -= kept
	}
	return r
}

// mostRoom is how many containers of a size are looked at. A machine has fewer pairs, unless its GPUs and
// NICs are shared out many times.
const mostRoom = 128

// countFitting returns the room in the free same-switch pairs, given by NUMA node. The function admit returns
// the kubelet's verdict on a container of a size with these free pairs: its NUMA nodes, or false for a
// refusal.
func countFitting(pairs model.PerNode, admit func(size int, pairs model.PerNode) (model.Mask, bool)) Room {
	var room Room
	for i, size := range sizes {
		left, free := pairs.On(^model.Mask(0)), slices.Clone(pairs)
		for ; left >= size && room[i] < mostRoom; left -= size {
			nodes, admitted := admit(size, free)
			if !admitted {
				break
			}
			takePairs(free, nodes, size)
			room[i]++
		}
	}
	return room
}

// takePairs takes pairs from NUMA nodes, and the rest from the other nodes.
func takePairs(pairs model.PerNode, from model.Mask, size int) {
	for _, m := range [...]model.Mask{from, ^from} {
		for node := range pairs {
			if m>>node&1 == 1 {
				t := min(size, pairs[node])
				pairs[node] -= t
				size -= t
			}
		}
	}
}

// Stranded returns the number of pairs that the free devices cannot form because of their switches.
func (s *State) Stranded() int { return s.node.switches.Stranded(s.node.devices, s.freeDevices()) }

// Room returns the room of the free devices for containers that request the most frequent GPU and VF
// resources of the node. CPUs and memory are ignored.
func (s *State) Room() Room {
	n := s.node
	g, v := n.largestResource(model.GPU), n.largestResource(model.VF)
	if g == nil || v == nil {
		return Room{}
	}
	free := s.freeDevices()
	return countFitting(n.pairsOn(free.Intersection(g.All), free.Intersection(v.All)),
		func(size int, pairs model.PerNode) (model.Mask, bool) {
			demands := make([]model.Demand, 0, 2)
			for _, r := range [...]*devicemanager.ResourceDevices{g, v} {
				if r.Hinted {
					demands = append(demands, model.Demand{Count: size, All: r.Total, Free: pairs})
				}
			}
			return n.kubelet.Rule.Nodes(demands)
		})
}

// largestResource returns the resource of a kind with the most devices, nil for none.
func (s *shape) largestResource(kind model.Kind) *devicemanager.ResourceDevices {
	var most *devicemanager.ResourceDevices
	for i := range s.devices.Resources {
		if r := &s.devices.Resources[i]; r.Kind == kind && (most == nil || r.Count > most.Count) {
			most = r
		}
	}
	return most
}

// pairsOn returns the number of pairs that free devices of two resources form on the switches of each NUMA
// node in the hints of the kubelet. Devices without hints count for node 0.
func (s *shape) pairsOn(gpus, vfs devicemanager.Set) model.PerNode {
	pairs := make(model.PerNode, 64)
	for i := range s.switches {
		on := &s.switches[i]
		if p := min(gpus.Common(on[model.GPU]), vfs.Common(on[model.VF])); p > 0 {
			pairs[s.hintedNode(on)] += p
		}
	}
	return pairs
}

// hintedNode returns the NUMA node in the hints for the devices of a switch.
func (s *shape) hintedNode(of *[2]devicemanager.Set) int {
	for i := range s.devices.Resources {
		r := &s.devices.Resources[i]
		for node, on := range r.On {
			if on.Common(of[r.Kind]) > 0 {
				return node
			}
		}
	}
	return 0
}

// Free returns the number of free healthy devices of all resources.
func (s *State) Free() int { return s.freeDevices().Len() }

func (s *State) freeDevices() devicemanager.Set { return s.node.healthy.Difference(s.taken) }
