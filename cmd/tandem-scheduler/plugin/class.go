// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/coordination/verdict"
)

// kind is a hash of an object without its holdings. Most nodes of a cluster are of one kind.
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

// class has the cached results of nodes of one kind with the same free devices. A result never becomes stale:
// the class and the request are its complete input.
type class struct {
	verdicts memo[verdict.Verdict]
	offers   memo[offer]
}

// classKey identifies a class.
type classKey struct {
	kind  kind
	taken [sha256.Size]byte // of verdict.State.Same, with a bit for each device
}

// maxClasses limits the known classes. When all are forgotten, observations keep the class of their node.
const maxClasses = 1 << 12

// classes are the known classes of the cluster.
type classes struct {
	mu    sync.Mutex
	known map[classKey]*class
}

// find returns the class of a node of a kind, or a class of its own if the state cannot be compared.
func (c *classes) find(k kind, state *verdict.State) *class {
	taken := state.Same()
	if taken == "" {
		return &class{}
	}
	key := classKey{k, sha256.Sum256([]byte(taken))}
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.known[key]
	if found == nil {
		if c.known == nil || len(c.known) >= maxClasses {
			c.known = map[classKey]*class{}
		}
		found = &class{}
		c.known[key] = found
	}
	return found
}
