// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"maps"
	"sync/atomic"
)

// maxRequests limits the results of a memo. A full memo is cleared.
const maxRequests = 64

// memo caches results by request. Lookups take no lock: each new result replaces the map by a larger copy.
type memo[T any] struct{ known atomic.Pointer[map[request]T] }

// find returns a cached result.
func (m *memo[T]) find(r request) (result T, known bool) {
	if all := m.known.Load(); all != nil {
		result, known = (*all)[r]
	}
	return result, known
}

func (m *memo[T]) remember(r request, result T) {
	for {
		before, after := m.known.Load(), map[request]T{}
		if before != nil && len(*before) < maxRequests {
			after = maps.Clone(*before)
		}
		after[r] = result
		if m.known.CompareAndSwap(before, &after) {
			return
		}
	}
}
