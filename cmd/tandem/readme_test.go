package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReadme runs the commands that README shows and compares what they print.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)```console\n\\$ bin/tandem ([^\n]*)\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	if len(shown) < 2 {
		t.Fatalf("README shows %d commands, want topo and plan", len(shown))
	}
	for _, command := range shown {
		args := strings.Fields(strings.ReplaceAll(command[1], "test/machines/", "../../test/machines/"))
		code, stdout, stderr := run(args...)
		if code != 0 || stderr != "" {
			t.Errorf("tandem %s: exit code %d, standard error %q", command[1], code, stderr)
		}
		if diff := cmp.Diff(command[2], stdout); diff != "" {
			t.Errorf("tandem %s: README shows something else (-README +printed):\n%s", command[1], diff)
		}
	}
}
