package plugin

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/tandem-k8s/tandem/cluster/rank"
	"github.com/tandem-k8s/tandem/cluster/v1alpha1"
)

// kind is what nodes have in common whose objects are equal but for what is held. Most nodes of a cluster are
// of one kind, and with the same devices free they offer the same, which takes longer to find out than all
// else.
type kind struct {
	mu     sync.Mutex
	offers map[question]rank.Offer
}

// question is what an offer depends on.
type question struct {
	taken string // verdict.State.Same
	wish  asked
}

// most is how many kinds, and how many offers of a kind, are remembered. Then it begins anew.
const most = 1 << 16

// known is the offer that was made before, if any.
func (k *kind) known(q question) (rank.Offer, bool) {
	if q.taken == "" {
		return rank.Offer{}, false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	offer, known := k.offers[q]
	return offer, known
}

func (k *kind) remember(q question, offer rank.Offer) {
	if q.taken == "" {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.offers) >= most {
		clear(k.offers)
	}
	k.offers[q] = offer
}

// kinds are those of a cluster. Several informers may use them at once.
type kinds struct {
	mu    sync.Mutex
	known map[string]*kind
}

// of is the kind of a node.
func (k *kinds) of(topology *v1alpha1.NodeTopology) (*kind, error) {
	spec := topology.Spec
	spec.Held, spec.MemoryReserved, spec.Summary = nil, nil, v1alpha1.Summary{}
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("write NodeTopology %s: %w", topology.Name, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known == nil || len(k.known) >= most {
		k.known = map[string]*kind{}
	}
	found := k.known[string(text)]
	if found == nil {
		found = &kind{offers: map[question]rank.Offer{}}
		k.known[string(text)] = found
	}
	return found, nil
}
