package grants

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// Spec is what the CDI spec of one pool says. The zero value is one that has to be written.
type Spec struct {
	mu     sync.Mutex
	grants map[string]*Grant // by device ID; nil where the spec has to be written
}

// Write writes the spec where device nodes go through CDI: of all devices of the pool where given is nil, or
// anew where what is given of some differs from what it says, or where it is gone: another instance of the
// plugin removes it when it ends. What could not be written is written whole the next time.
func (s *Spec) Write(h Host, pool pools.Pool, given map[string]*Grant) error {
	if h.CDI == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := given == nil || s.grants == nil
	grants := maps.Clone(s.grants)
	if changed {
		grants = h.all(pool)
	}
	for id, g := range given {
		if before := grants[id]; before == nil || !slices.EqualFunc(before.Nodes, g.Nodes, sameNode) {
			grants[id], changed = g, true
		}
	}
	names := cdiPoolOf(pool)
	if !changed && h.CDI.has(names) {
		return nil
	}
	if err := h.CDI.write(names, pool.Devices, grants); err != nil {
		s.grants = nil
		return err
	}
	s.grants = grants
	return nil
}

// all are the grants of all devices of a pool that have no fault.
func (h Host) all(pool pools.Pool) map[string]*Grant {
	all, functions := map[string]*Grant{}, map[string]*Grant{}
	for _, d := range pool.Devices {
		if d.Fault != "" {
			continue
		}
		if functions[d.File()] == nil { // replicas have one function
			functions[d.File()] = h.Grant(d, pool.Resource)
		}
		all[d.ID] = functions[d.File()]
	}
	return all
}

func sameNode(a, b *v1beta1.DeviceSpec) bool {
	return a.GetHostPath() == b.GetHostPath() && a.GetContainerPath() == b.GetContainerPath()
}
