// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tandem-k8s/tandem/cmd/internal/cli"
)

// TestHelpFolded: on a narrow terminal the help has the same words, whole examples, and no other line that is
// longer than the terminal is wide.
func TestHelpFolded(t *testing.T) {
	t.Parallel()
	for _, name := range append(cli.Commands(newRoot()), "completion") {
		const width = 80
		whole := succeed(t, name, "--help")
		var out bytes.Buffer
		if err := cli.ShowHelp(cli.Screen{Out: &out, Width: width}, whole); err != nil {
			t.Fatal(err)
		}
		folded := out.String()
		if !slices.Equal(strings.Fields(folded), strings.Fields(whole)) {
			t.Errorf("%s: other words:\n%s", name, folded)
		}
		for line := range strings.Lines(folded) {
			isExample := strings.HasPrefix(line, "  ") && strings.Contains(whole, "\n"+line)
			if utf8.RuneCountInString(strings.TrimRight(line, "\n")) > width && !isExample {
				t.Errorf("%s: a line of more than %d columns: %s", name, width, line)
			}
		}
		_, examples, _ := strings.Cut(whole, "\nExamples:\n")
		if examples, _, _ = strings.Cut(examples, "\n\n"); !strings.Contains(folded, examples) {
			t.Errorf("%s: folded examples:\n%s", name, folded)
		}
	}
}
