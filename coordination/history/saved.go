// SPDX-License-Identifier: Apache-2.0

package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// Saved is a decision as it is written down.
type Saved struct {
	Container *kubelet.Container `json:"container,omitempty"`
	Allocated []string           `json:"allocated"`
	Given     time.Time          `json:"given"`
	Fixed     json.RawMessage    `json:"decision"` // api.Decision
}

// Living are copies of the decisions whose containers live, the oldest first.
func (d *Log) Living() []Decision {
	var living []Decision
	for _, e := range d.entries {
		if d.lives(e) {
			living = append(living, *e)
		}
	}
	return living
}

// Save is decisions as they are written down. One that cannot be is left out: it is for people alone.
func Save(decisions []Decision) []Saved {
	saved := make([]Saved, 0, len(decisions))
	for _, e := range decisions {
		if fixed, err := protojson.Marshal(e.fixed()); err == nil {
			saved = append(saved, Saved{e.Container, e.Allocated, e.Given, fixed})
		}
	}
	return saved
}

// Restore takes over what an earlier server wrote down, into an empty log. Where that contradicts itself it
// fails, and the log stays empty.
func (d *Log) Restore(saved []Saved) error {
	restored := Log{Lives: d.Lives}
	if len(saved) > Most {
		return fmt.Errorf("%d decisions, more than %d", len(saved), Most)
	}
	for _, s := range saved {
		m := &api.Decision{}
		if err := protojson.Unmarshal(s.Fixed, m); err != nil {
			return fmt.Errorf("parse a decision: %w", err)
		}
		if m.GetResource() == "" || len(s.Allocated) == 0 {
			return errors.New("a decision gave nothing")
		}
		e := &Decision{
			At: time.Unix(0, m.GetTimeUnixNano()), Container: s.Container, Resource: m.GetResource(),
			Size: int(m.GetSize()), Asked: m.GetAsked(), Allocated: s.Allocated, Given: s.Given,
			fixed: func() *api.Decision { return m }, cost: encodedBytes(m), short: true,
		}
		restored.entries = append(restored.entries, e)
		restored.index(e)
	}
	restored.fit()
	*d = restored
	return nil
}
