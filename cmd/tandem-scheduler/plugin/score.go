// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-k8s/tandem/coordination/verdict"
)

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
