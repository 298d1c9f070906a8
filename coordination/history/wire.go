// SPDX-License-Identifier: Apache-2.0

package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// Encode converts a decision to its wire format.
func (e *Decision) Encode() *api.Decision {
	m := proto.CloneOf(e.message())
	if e.Container != nil {
		m.Container = Owner(*e.Container, e.PodUID)
	}
	m.PodUid, m.Allocated, m.Refusal, m.Held = e.PodUID, e.Allocated, e.Refusal, e.Held
	if !e.AllocatedAt.IsZero() {
		m.AllocatedUnixNano = e.AllocatedAt.UnixNano()
	}
	return m
}

// encode converts a decision to its wire format, without container and Allocate. With results, encode
// computes a choice for each switch.
func (e *Decision) encode(results bool) *api.Decision {
	m := &api.Decision{
		TimeUnixNano: e.At.UnixNano(),
		TookNano:     int64(e.Took),
		Resource:     e.Resource,
		Asked:        e.HasQuestion,
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
	if e.HasQuestion {
		for _, o := range e.options(results) {
			m.Options = append(m.Options, &api.Option{
				Switch: o.name, FreeGpus: uint32(o.gpus), FreeVfs: uint32(o.vfs), TakenGpus: uint32(o.takenGPUs),
				TakenVfs: uint32(o.takenVFs), Result: o.result,
			})
		}
	}
	return m
}

// Owner converts a container to its wire format; an empty UID means unknown.
func Owner(c kubelet.Container, uid string) *api.Owner {
	return &api.Owner{Namespace: c.Namespace, Pod: c.Pod.Name, Container: c.Name, Uid: uid}
}

// Saved is the file format of a decision.
type Saved struct {
	Container   *kubelet.Container `json:"container,omitempty"`
	PodUID      string             `json:"uid,omitempty"`
	Allocated   []string           `json:"allocated"`
	AllocatedAt time.Time          `json:"given"`
	Fixed       json.RawMessage    `json:"decision"` // api.Decision
}

// Save converts decisions to their file format. It omits decisions that fail to encode.
func Save(decisions []Decision) []Saved {
	saved := make([]Saved, 0, len(decisions))
	for _, e := range decisions {
		if fixed, err := protojson.Marshal(e.message()); err == nil {
			saved = append(saved, Saved{e.Container, e.PodUID, e.Allocated, e.AllocatedAt, fixed})
		}
	}
	return saved
}

// Restore replaces the decisions of an empty log by those that an earlier server saved. If the saved
// decisions are invalid, Restore returns an error and the log stays empty.
func (d *Log) Restore(saved []Saved) error {
	restored := Log{IsHeld: d.IsHeld}
	if len(saved) > Most {
		return fmt.Errorf("%d decisions, more than %d", len(saved), Most)
	}
	for _, s := range saved {
		m := &api.Decision{}
		if err := protojson.Unmarshal(s.Fixed, m); err != nil {
			return fmt.Errorf("parse a decision: %w", err)
		}
		if m.GetResource() == "" || len(s.Allocated) == 0 {
			return errors.New("a decision without resource or allocated devices")
		}
		e := &Decision{
			At: time.Unix(0, m.GetTimeUnixNano()), Container: s.Container, PodUID: s.PodUID,
			Resource: m.GetResource(), Size: int(m.GetSize()), HasQuestion: m.GetAsked(), Allocated: s.Allocated,
			AllocatedAt: s.AllocatedAt,
			message:     func() *api.Decision { return m }, cost: encodedBytes(m), shortened: true,
		}
		restored.entries = append(restored.entries, e)
		restored.index(e)
	}
	restored.fit()
	*d = restored
	return nil
}
