// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime/debug"
	"testing"
)

// TestOfModule: a replaced module is named as it was built, and never by a path of the machine that built it.
func TestOfModule(t *testing.T) {
	r := release{version: "0.1.0-dev+0123"}
	for _, c := range []struct {
		module debug.Module
		want   part
	}{
		{
			debug.Module{Path: "example.com/Upper", Version: "v2.0.0+incompatible"},
			part{"example.com/Upper", "v2.0.0+incompatible", unknown,
				"pkg:golang/example.com/upper@v2.0.0%2Bincompatible"},
		},
		{
			debug.Module{Path: "k8s.io/api", Version: "v0.0.0",
				Replace: &debug.Module{Path: "k8s.io/api", Version: "v0.37.1"}},
			part{"k8s.io/api", "v0.37.1", unknown, "pkg:golang/k8s.io/api@v0.37.1"},
		},
		{
			debug.Module{Path: module, Version: "v0.0.0", Replace: &debug.Module{Path: "../..", Version: "(devel)"}},
			part{module, r.version, "Apache-2.0", "pkg:golang/" + module + "@0.1.0-dev%2B0123"},
		},
	} {
		if got := r.ofModule(&c.module); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.module.Path, got, c.want)
		}
	}
}
