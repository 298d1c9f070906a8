// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-k8s/tandem/coordination/verdict"
)

// stateKey is the key of the pod's request in the cycle state.
const stateKey = fwk.StateKey("tandem.dev/request")

// PreFilter skips pods without a request for published resources.
func (p *Plugin) PreFilter(
	_ context.Context, state fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo,
) (*fwk.PreFilterResult, *fwk.Status) {
	if !p.asksForDevices(pod) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	request, err := hashRequest(pod)
	if err != nil {
		return nil, fwk.AsStatus(fmt.Errorf("read what pod %s asks for: %w", pod.Name, err))
	}
	state.Write(stateKey, request)
	return nil, nil
}

// PreFilterExtensions returns nil: Filter reads the pods of the NodeInfo, from which preemption has removed
// its victims.
func (*Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter rejects nodes whose kubelet would refuse the pod, with the kubelet's reason. If the empty node would
// refuse the pod too, preemption cannot help.
func (p *Plugin) Filter(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo,
) *fwk.Status {
	object := p.objects.find(info.Node().Name)
	if object == nil || !object.describes(info) {
		return nil
	}
	request, err := readRequest(state)
	if err != nil {
		return fwk.AsStatus(err)
	}
	v := verdict.Verdict{Admitted: true}
	if object.refusal() == nil {
		object.try(ctx, func() { v = object.observation(info).verdict(pod, request) })
	}
	if refusal := object.refusal(); refusal != nil {
		p.report(info.Node(), object, "NodeTopologyRefused", "the scheduler does not filter this node", refusal)
		return nil
	}
	if object.left != nil {
		p.report(info.Node(), object, "NodeTopologyIncomplete",
			"the scheduler ignores a part of the object", object.left)
	}
	switch {
	case v.Admitted:
		return nil
	case v.Never:
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, v.Reason)
	default:
		return fwk.NewStatus(fwk.Unschedulable, v.Reason)
	}
}

func readRequest(state fwk.CycleState) (request, error) {
	data, err := state.Read(stateKey)
	if err != nil {
		return "", fmt.Errorf("read the pod's request: %w", err)
	}
	return data.(request), nil
}

// overtaken is the reason against a node on which the order of admissions decides whether all pods on their
// way will be admitted, or where there are too many orders to tell.
const overtaken = "another pod is on its way to the node, and one of the two may find its devices taken"

// observation is a version of a node's object with the pods of one generation of the NodeInfo. Another
// version or generation needs another observation.
type observation struct {
	generation int64
	class      *class // of the node after the admission of inFlight
	node       *verdict.Node
	held       *verdict.State // holdings of pods in the object
	inFlight   []*v1.Pod      // pods without holdings, in the order of the NodeInfo
	gone       []types.UID    // pods that hold devices only in the object
	safe       memo[bool]     // whether inFlight and a pod may be admitted in any order

	mu    sync.Mutex     // of the fields below
	after *verdict.State // after the admission of inFlight
	since []step         // steps since the object was written; nil until needed
	room  *verdict.Room  // nil until needed
}

// observe subtracts the holdings of deleted pods, and admits the pods without holdings.
func observe(node *verdict.Node, info fwk.NodeInfo) *observation {
	s := &observation{generation: info.GetGeneration(), node: node}
	pods := info.GetPods()
	present := make(sets.Set[types.UID], len(pods))
	for _, p := range pods {
		present.Insert(p.GetPod().UID)
	}
	s.held = node.State(func(uid types.UID) bool {
		if !present.Has(uid) {
			s.gone = append(s.gone, uid)
		}
		return present.Has(uid)
	})
	for _, p := range pods {
		if pod := p.GetPod(); !s.held.Holds(pod.UID) && node.Concerns(pod) {
			s.inFlight = append(s.inFlight, pod)
		}
	}
	s.after = s.held
	if len(s.inFlight) > 0 {
		s.after = s.held.Clone()
	}
	for _, pod := range byCreation(s.inFlight) {
		s.after.Admit(pod)
	}
	return s
}

// before returns the holdings of the object, those of deleted pods included.
func (s *observation) before() *verdict.State {
	if len(s.gone) == 0 {
		return s.held
	}
	return s.node.State(func(types.UID) bool { return true })
}

// verdict returns the kubelet's verdict on a pod that is sent now. Pods on their way may be admitted before
// or after the pod, and before or after others end. In every order the kubelet must admit the pod, and must
// not refuse another pod because of it.
func (s *observation) verdict(pod *v1.Pod, request request) verdict.Verdict {
	v, known := s.class.verdicts.find(request)
	if !known {
		v = s.ask(pod, request)
	}
	if v.Admitted && len(s.inFlight) > 0 && !s.isSafe(pod, request) {
		return verdict.Verdict{Reason: overtaken}
	}
	return v
}

// ask returns the verdict on a pod that is admitted last.
func (s *observation) ask(pod *v1.Pod, request request) verdict.Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.after.Ask(pod)
	if !s.after.Holds(pod.UID) { // else other nodes of the class may answer differently
		s.class.verdicts.remember(request, v)
	}
	return v
}

// isSafe reports whether the order of the admissions does not matter.
func (s *observation) isSafe(pod *v1.Pod, request request) bool {
	safe, known := s.safe.find(request)
	if known {
		return safe
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since == nil {
		s.since = stepsOf(s.gone, s.inFlight)
	}
	safe = newCourses(s.since, pod, s.node.Devices()).wellFrom(s.before())
	s.safe.remember(request, safe)
	return safe
}

// offer returns the node's offer for a pod that the kubelet admits.
func (s *observation) offer(pod *v1.Pod, request request) offer {
	offer, known := s.class.offers.find(request)
	if known {
		return offer
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	offer = s.rate(pod)
	if !s.after.Holds(pod.UID) {
		s.class.offers.remember(request, offer)
	}
	return offer
}

// rate admits the pod last and rates the remaining devices. Must be called with the lock held.
func (s *observation) rate(pod *v1.Pod) offer {
	if s.room == nil {
		s.room = new(s.after.Room())
	}
	then := s.after.Clone()
	o := offer{pairs: then.Admit(pod).Pairs}
	o.stranded, o.lost, o.free = then.Stranded(), s.room.Less(then.Room()), then.Free()
	return o
}

// offersKey is the key of the nodes' offers in the cycle state.
const offersKey = fwk.StateKey("tandem.dev/offers")

// offer is the result of a node for a pod.
type offer struct {
	pairs    int          // same-switch pairs of the pod's GPUs and VFs
	stranded int          // after the pod, including pairs that were stranded before
	lost     verdict.Room // room before the pod less room after
	free     int          // devices, after the pod
}

// compareOffers returns a positive number if a is better than b: by more pairs; else by fewer stranded pairs;
// else by less lost room, for large containers first; else by fewer free devices, so that whole nodes stay
// free.
func compareOffers(a, b offer) int {
	by := cmp.Or(cmp.Compare(a.pairs, b.pairs), cmp.Compare(b.stranded, a.stranded))
	for i := range a.lost {
		by = cmp.Or(by, cmp.Compare(b.lost[i], a.lost[i]))
	}
	return cmp.Or(by, cmp.Compare(b.free, a.free))
}

// offerNumbers are the distinct offers of nodes for a pod. Most nodes share an offer.
type offerNumbers struct {
	mu      sync.Mutex
	numbers map[offer]int64 // from 1 on
}

// Clone implements fwk.StateData: a cycle is scored once.
func (o *offerNumbers) Clone() fwk.StateData { return o }

// number returns the number of an offer.
func (o *offerNumbers) number(of offer) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	number, known := o.numbers[of]
	if !known {
		number = int64(len(o.numbers)) + 1
		o.numbers[of] = number
	}
	return number
}

// scores returns the score of each offer, by its number.
func (o *offerNumbers) scores() []int64 {
	sorted := slices.SortedFunc(maps.Keys(o.numbers), func(a, b offer) int { return compareOffers(b, a) })
	scores := make([]int64, len(sorted)+1)
	scores[0] = fwk.MinScore // nothing is known
	for i, offer := range sorted {
		scores[o.numbers[offer]] = max(fwk.MaxScore-int64(i), 1)
	}
	return scores
}

// PreScore skips the pods that PreFilter skipped.
func (p *Plugin) PreScore(
	_ context.Context, state fwk.CycleState, _ *v1.Pod, _ []fwk.NodeInfo,
) *fwk.Status {
	if _, err := readRequest(state); err != nil {
		return fwk.NewStatus(fwk.Skip)
	}
	state.Write(offersKey, &offerNumbers{numbers: map[offer]int64{}})
	return nil
}

// Score returns the number of the node's offer for the pod, 0 for an unknown offer. NormalizeScore compares
// the offers of all nodes.
func (p *Plugin) Score(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo,
) (int64, *fwk.Status) {
	object := p.objects.valid(info.Node().Name)
	if object == nil || !object.describes(info) {
		return 0, nil
	}
	request, err := readRequest(state)
	if err != nil {
		return 0, fwk.AsStatus(err)
	}
	data, err := state.Read(offersKey)
	if err != nil {
		return 0, fwk.AsStatus(err)
	}
	var made offer
	if !object.try(ctx, func() { made = object.observation(info).offer(pod, request) }) {
		return 0, nil
	}
	return data.(*offerNumbers).number(made), nil
}

// ScoreExtensions rank the nodes.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return p }

// NormalizeScore gives the best offer 100, the next one 99, and so on: equal offers get equal scores, offers
// from rank 100 on get 1, and nodes with an unknown offer 0.
func (p *Plugin) NormalizeScore(
	_ context.Context, state fwk.CycleState, _ *v1.Pod, scores fwk.NodeScoreList,
) *fwk.Status {
	data, err := state.Read(offersKey)
	if err != nil {
		return fwk.AsStatus(err)
	}
	of := data.(*offerNumbers).scores()
	for i := range scores {
		scores[i].Score = of[scores[i].Score]
	}
	return nil
}
