// SPDX-License-Identifier: Apache-2.0

package history

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// Encode is a decision as it is sent.
func (e *Decision) Encode() *api.Decision {
	m := proto.CloneOf(e.fixed())
	if e.Container != nil {
		m.Container = Owner(*e.Container)
	}
	m.Allocated, m.Refusal = e.Allocated, e.Refusal
	if !e.Given.IsZero() {
		m.AllocatedUnixNano = e.Given.UnixNano()
	}
	return m
}

// encode is what never changes of a decision, as it is sent. What each switch would have given takes a choice
// for each, so that it is found once; or it is left out.
func (e *Decision) encode(results bool) *api.Decision {
	m := &api.Decision{
		TimeUnixNano: e.At.UnixNano(),
		TookNano:     int64(e.Took),
		Resource:     e.Resource,
		Asked:        e.Asked,
		Size:         uint32(e.Size),
		Available:    uint32(e.Available),
		MustInclude:  e.MustInclude,
		Known:        e.Known,
		Chosen:       e.Chosen,
		Reason:       e.Choice.Reason,
	}
	for _, name := range slices.Sorted(maps.Keys(e.Planned)) {
		if m.Planned == nil {
			m.Planned = map[string]*api.DeviceList{}
		}
		m.Planned[name] = &api.DeviceList{Ids: e.Planned[name]}
	}
	for _, p := range e.Choice.Pairs {
		m.Pairs = append(m.Pairs, &api.Pair{Gpu: p.GPU.ID, Vf: p.VF.ID, Distance: p.Distance.Level.String()})
	}
	if e.Asked {
		for _, o := range e.options(results) {
			m.Options = append(m.Options, &api.Option{
				Switch: o.name, FreeGpus: uint32(o.gpus), FreeVfs: uint32(o.vfs), TakenGpus: uint32(o.takenGPUs),
				TakenVfs: uint32(o.takenVFs), Result: o.result,
			})
		}
	}
	return m
}

// Owner is a container as it is sent.
func Owner(c kubelet.Container) *api.Owner {
	return &api.Owner{Namespace: c.Namespace, Pod: c.Pod.Name, Container: c.Name}
}
