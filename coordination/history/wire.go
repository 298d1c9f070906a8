// SPDX-License-Identifier: Apache-2.0

package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// Encode converts a decision to its wire format.
func (e *Decision) Encode() *api.Decision {
	m := proto.CloneOf(e.message.get())
	if e.Container != nil {
		m.Container = Owner(*e.Container, e.PodUID)
	}
	m.PodUid, m.Allocated, m.Refusal, m.Held = e.PodUID, e.Allocated, e.Refusal, e.Held
	if !e.AllocatedAt.IsZero() {
		m.AllocatedUnixNano = e.AllocatedAt.UnixNano()
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

// Save converts the decisions whose containers hold their devices to their file format. It completes the
// messages of all decisions, and omits decisions that fail to encode.
func Save(decisions []Decision) []Saved {
	saved := make([]Saved, 0, len(decisions))
	for _, e := range decisions {
		m := e.message.get()
		if !e.Held {
			continue
		}
		if fixed, err := protojson.Marshal(m); err == nil {
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
			Container: s.Container, PodUID: s.PodUID, Allocated: s.Allocated, AllocatedAt: s.AllocatedAt,
			resource: m.GetResource(), message: &message{whole: m, cost: messageBytes(m)},
		}
		restored.entries = append(restored.entries, e)
		restored.index(e)
	}
	restored.fit()
	*d = restored
	return nil
}
