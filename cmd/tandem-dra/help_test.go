// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/internal/plainflag"
)

// TestHelpGroups: every flag is in a group of the help page.
func TestHelpGroups(t *testing.T) {
	t.Parallel()
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(options).register(set)
	help := plainflag.Usages(set)
	if _, others, found := strings.Cut(help, "Other flags:"); found {
		t.Errorf("flags in no group:%s", others)
	}
	for _, heading := range []string{"Logging:\n"} {
		if strings.Count(help, heading) != 1 {
			t.Errorf("the help does not have %q once:\n%s", heading, help)
		}
	}
}
