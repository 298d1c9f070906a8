// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"bytes"
	"slices"
	"sync"

	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// Spec is what the CDI spec of one pool should say. The zero value is one that has to be found out.
type Spec struct {
	mu      sync.Mutex
	grants  map[string]*Grant // by device ID; nil where they have to be looked up
	content []byte            // of the file; empty for no file
}

// Write makes the spec what it should be, where device nodes go through CDI: with all devices of the pool as
// they are now where given is nil, or as they were looked up last but for those given. The file is written
// where it is not that, whoever wrote or removed it: another instance of the plugin, one of the stock plugin,
// or an operator.
func (s *Spec) Write(h Host, pool pools.Pool, given map[string]*Grant) error {
	if h.CDI == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := given == nil || s.grants == nil
	if changed {
		s.grants = h.all(pool)
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
	if present, err := h.CDI.read(names); err == nil && bytes.Equal(present, s.content) {
		return nil
	}
	return h.CDI.write(names, s.content)
}

// all are the grants of all devices of a pool. Those with a fault are among them: a container that has one
// may start again.
func (h Host) all(pool pools.Pool) map[string]*Grant {
	all, functions := map[string]*Grant{}, map[string]*Grant{}
	for _, d := range pool.Devices {
		if functions[d.File()] == nil { // replicas have one function
			functions[d.File()] = h.Grant(d, pool.Resource)
		}
		all[d.ID] = functions[d.File()]
	}
	return all
}
