// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"strings"
	"testing"
)

// withholding is a list of withheld devices that does not change.
type withholding Holders

func (w withholding) Latest() (Holders, <-chan struct{}) { return Holders(w), nil }
func (withholding) Run(context.Context)                  {}

// TestEveryDeviceIsWithheld: while holders are unknown every device has one, and the status says why.
func TestEveryDeviceIsWithheld(t *testing.T) {
	for holders, want := range map[string]struct {
		id, note string
		has      bool
	}{
		"a":   {"b", "", false},
		Every: {"b::3", "all devices are withheld: held", true},
	} {
		w := withholding{holders: "held"}
		if got := Holders(w).Has(want.id); got != want.has {
			t.Errorf("%v: %s is held: %v", w, want.id, got)
		}
		notes := remarks{config: &Config{Withheld: w}}.notes(t.Context(), nil)
		if got := strings.Join(notes, "\n"); got != want.note {
			t.Errorf("%v: notes %q", w, got)
		}
	}
}
