// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"slices"
	"sync"

	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// Spec is the expected CDI spec of one pool. The zero value is an unknown spec.
type Spec struct {
	mu      sync.Mutex
	devices []pools.Device    // of the content
	grants  map[string]*Grant // by device ID; nil if unknown
	content []byte            // of the file; empty for no file
}

// Write updates the spec, if device nodes are passed by CDI: with the current grants of all devices of the
// pool if given is nil or the pool has other devices, else with the last grants updated by given. It rewrites
// the file if it differs, after changes by another instance, by the stock plugin or by an operator.
//
// Write calls newest under the lock, so that the last of several concurrent calls uses the newest pool.
func (s *Spec) Write(h Host, newest func() pools.Pool, given map[string]*Grant) error {
	if h.CDI == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	pool := newest()
	changed := given == nil || s.grants == nil || !slices.Equal(pool.Devices, s.devices)
	if changed {
		s.devices, s.grants = pool.Devices, h.all(pool)
	}
	for id, g := range given {
		if before := s.grants[id]; before == nil || !slices.Equal(before.Nodes, g.Nodes) {
			s.grants[id], changed = g, true
		}
	}
	names := cdiPoolOf(pool)
	if changed {
		var err error
		if s.content, err = names.spec(pool.Devices, s.grants); err != nil {
			s.grants = nil
			return err
		}
	}
	return h.CDI.write(names, s.content)
}

// all returns the grants of all devices of a pool. It includes faulty devices, because their containers may
// restart.
func (h Host) all(pool pools.Pool) map[string]*Grant {
	all, functions := map[string]*Grant{}, map[string]*Grant{}
	for _, d := range pool.Devices {
		if functions[d.File()] == nil { // replicas share a function
			functions[d.File()] = h.Grant(d, pool.Resource)
		}
		all[d.ID] = functions[d.File()]
	}
	return all
}
