// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-k8s/tandem/coordination/rank"
)

// offersKey is the key of the nodes' offers in the cycle state.
const offersKey = fwk.StateKey("tandem.dev/offers")

// offerNumbers are the distinct offers of nodes for a pod. Most nodes share an offer.
type offerNumbers struct {
	mu      sync.Mutex
	numbers map[rank.Offer]int64 // from 1 on
}

// Clone implements fwk.StateData: a cycle is scored once.
func (o *offerNumbers) Clone() fwk.StateData { return o }

// number returns the number of an offer.
func (o *offerNumbers) number(offer rank.Offer) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	number, known := o.numbers[offer]
	if !known {
		number = int64(len(o.numbers)) + 1
		o.numbers[offer] = number
	}
	return number
}

// scores returns the score of each offer, by its number.
func (o *offerNumbers) scores() []int64 {
	sorted := slices.SortedFunc(maps.Keys(o.numbers), func(a, b rank.Offer) int { return rank.Compare(b, a) })
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
	state.Write(offersKey, &offerNumbers{numbers: map[rank.Offer]int64{}})
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
	var offer rank.Offer
	if !object.try(ctx, func() { offer = object.observation(info).offer(pod, request) }) {
		return 0, nil
	}
	return data.(*offerNumbers).number(offer), nil
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
