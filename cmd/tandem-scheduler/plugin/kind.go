// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/tandem-k8s/tandem/cluster/rank"
	"github.com/tandem-k8s/tandem/cluster/v1alpha1"
)

// kind is a hash of an object without its holdings: nodes of one kind with the same free devices make the
// same offer. Most nodes of a cluster are of one kind.
type kind [sha256.Size]byte

// kindOf computes the kind of a node.
func kindOf(spec *v1alpha1.Spec) (kind, error) {
	fixed := *spec
	fixed.Held, fixed.MemoryReserved, fixed.Summary = nil, nil, v1alpha1.Summary{}
	text, err := json.Marshal(fixed)
	if err != nil {
		return kind{}, fmt.Errorf("encode object: %w", err)
	}
	return sha256.Sum256(text), nil
}

// question is the complete input of an offer.
type question struct {
	kind  kind
	taken [sha256.Size]byte // of verdict.State.Same, with a bit for each device
	wish  request
}

// maxOffers limits the cached offers of the cluster, of some 250 bytes each. A full cache is cleared.
const maxOffers = 1 << 16

// offerCache caches the offers of nodes, the most expensive results. Offers never become stale, as their key
// is the complete input.
type offerCache struct {
	mu    sync.Mutex
	known map[question]rank.Offer
}

// find returns a cached offer.
func (c *offerCache) find(q question) (rank.Offer, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	offer, known := c.known[q]
	return offer, known
}

func (c *offerCache) remember(q question, offer rank.Offer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known) >= maxOffers {
		c.known = map[question]rank.Offer{}
	}
	c.known[q] = offer
}
