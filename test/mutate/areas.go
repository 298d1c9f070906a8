// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
)

// patterns are the packages that decide.
var patterns = []string{"./coordination/...", "./plugins/...", "./topology/..."}

// areas has, for the packages of a folder, other packages whose tests judge what those decide, with
// arguments. They run for a mutation that the tests of its own package do not detect. One seed of a
// simulation has to do.
var areas = []struct {
	folder string
	judges []string
}{
	{"coordination", []string{
		"coordination", "coordination/admission", "coordination/publish", "coordination/verdict",
		"test/simulation -admissions=1",
	}},
	{"plugins/dra", []string{
		"plugins/dra", "plugins/dra/claims", "test/simulation/dra -admissions=1", "cmd/tandem-dra",
	}},
	{"plugins", []string{
		"plugins/gpu", "plugins/rdma", "cmd/tandem-gpu", "cmd/tandem-rdma", "test/simulation -admissions=1",
	}},
	{"topology", []string{
		"topology", "topology/placement", "test/machines", "plugins/rdma/pools", "test/simulation -admissions=1",
	}},
}

// judges returns the packages that judge a package beside its own tests.
func judges(name string) []string {
	for _, a := range areas {
		if name == a.folder || strings.HasPrefix(name, a.folder+"/") {
			return slices.DeleteFunc(slices.Clone(a.judges), func(judge string) bool { return judge == name })
		}
	}
	return nil
}
