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

// kind stands for all of an object but what is held: nodes of one kind with the same devices free offer the
// same. Most nodes of a cluster are of one kind.
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

// question is what an offer depends on, and nothing else.
type question struct {
	kind  kind
	taken [sha256.Size]byte // of verdict.State.Same, which has a bit for each device
	wish  asked
}

// maxOffers is how many offers are remembered for the cluster, of some 250 bytes each. Then the cache begins
// anew.
const maxOffers = 1 << 16

// offerCache remembers what nodes offer, which takes longer to find out than all else. An offer never goes
// stale, for the question names all that it depends on; it is no longer asked for once no node is as it was.
type offerCache struct {
	mu    sync.Mutex
	known map[question]rank.Offer
}

// find returns the offer that was made before, if any.
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
