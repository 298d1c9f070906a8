package plugin

import (
	"cmp"
	"context"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-k8s/tandem/cluster/rank"
)

// offersKey is where a scheduling cycle keeps what the nodes offer.
const offersKey = fwk.StateKey("tandem.dev/offers")

// offers are what nodes would make of a pod, by name.
type offers struct {
	mu sync.Mutex
	of map[string]rank.Offer
}

// Clone is the framework's: a cycle is scored once.
func (o *offers) Clone() fwk.StateData { return o }

// PreScore skips what PreFilter has skipped.
func (p *Plugin) PreScore(
	_ context.Context, state fwk.CycleState, _ *v1.Pod, nodes []fwk.NodeInfo,
) *fwk.Status {
	if _, err := read(state); err != nil {
		return fwk.NewStatus(fwk.Skip)
	}
	state.Write(offersKey, &offers{of: make(map[string]rank.Offer, len(nodes))})
	return nil
}

// Score remembers what a node would make of the pod. How good that is, is seen beside the others.
func (p *Plugin) Score(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo,
) (int64, *fwk.Status) {
	object := p.object(info.Node().Name)
	if object == nil {
		return 0, nil
	}
	wish, err := read(state)
	if err != nil {
		return 0, fwk.AsStatus(err)
	}
	data, err := state.Read(offersKey)
	if err != nil {
		return 0, fwk.AsStatus(err)
	}
	var offer rank.Offer
	if !object.try(klog.FromContext(ctx), func() { offer = object.offer(info, pod, wish) }) {
		return 0, nil
	}
	all := data.(*offers)
	all.mu.Lock()
	defer all.mu.Unlock()
	all.of[info.Node().Name] = offer
	return 0, nil
}

// ScoreExtensions rank the nodes.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return p }

// NormalizeScore gives the best node 100, the next one 99, and so on. Nodes that offer alike get alike, those
// from rank 100 on get 1, and nodes of which nothing is known 0.
func (p *Plugin) NormalizeScore(
	_ context.Context, state fwk.CycleState, _ *v1.Pod, scores fwk.NodeScoreList,
) *fwk.Status {
	data, err := state.Read(offersKey)
	if err != nil {
		return fwk.AsStatus(err)
	}
	normalize(data.(*offers).of, scores)
	return nil
}

func normalize(of map[string]rank.Offer, scores fwk.NodeScoreList) {
	var known []*fwk.NodeScore
	for i := range scores {
		scores[i].Score = fwk.MinScore
		if _, offered := of[scores[i].Name]; offered {
			known = append(known, &scores[i])
		}
	}
	slices.SortFunc(known, func(a, b *fwk.NodeScore) int {
		return cmp.Or(rank.Compare(of[b.Name], of[a.Name]), cmp.Compare(a.Name, b.Name))
	})
	score := fwk.MaxScore
	for i, node := range known {
		if i > 0 && rank.Compare(of[known[i-1].Name], of[node.Name]) != 0 {
			score = max(score-1, 1)
		}
		node.Score = score
	}
}
