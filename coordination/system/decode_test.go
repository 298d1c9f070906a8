// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"errors"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/system"
)

// TestDecode: a file is what it says only if it has all that a file of its program has.
func TestDecode(t *testing.T) {
	type content struct{ A struct{ B, C []string } }
	layout := system.Layout{Version: 2, Keys: []string{"A.B", "A.C"}}
	for text, want := range map[string]string{
		`{"version":2,"A":{"B":["x"],"C":null}}`: "known",
		`{"version":2,"A":{"B":["x"],"C":1}}`:    "unknown",
		`{"version":2,"A":{"B":["x"]}}`:          "unknown",
		`{"version":2,"A":null}`:                 "unknown",
		`{"version":2,"D":{"A":{"B":[],"C":[]}}`: "unknown",
		`{"version":1,"A":{"B":["x"],"C":null}}`: "unknown",
		`{"A":{"B":["x"],"C":null}}`:             "unknown",
		`{"version":3}`:                          "newer",
		`{"version":`:                            "unknown",
		`null`:                                   "unknown",
		`[]`:                                     "unknown",
		``:                                       "unknown",
	} {
		value, err := system.Decode[content]([]byte(text), layout)
		got := "known"
		switch {
		case errors.Is(err, system.ErrNewer):
			got = "newer"
		case err != nil:
			got = "unknown"
		case len(value.A.B) != 1:
			t.Errorf("%s is %+v", text, value)
		}
		if got != want {
			t.Errorf("%s is %s, want %s: %v", text, got, want, err)
		}
	}
	if value, err := system.Decode[map[string]int]([]byte(`{"a":1}`), system.Layout{}); err != nil || value["a"] != 1 {
		t.Errorf("without a layout: %v, %v", value, err)
	}
}
