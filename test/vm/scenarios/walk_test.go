// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/test/docs"
)

// pages are those by which a new user gets to know Tandem, or replaces the stock plugins with it.
var pages = []string{
	"README.md", "docs/install.md", "docs/tune.md", "docs/troubleshoot.md", "docs/tools.md",
	"docs/how-it-works.md", "docs/cluster.md", "docs/limits.md", "docs/performance.md", "docs/glossary.md",
	"docs/qualify.md", "docs/deployers.md",
}

// elsewhere reports whether an argument says that a command takes something from outside: a chart of others,
// or a release.
func elsewhere(arg string) bool {
	return arg == "--repo" || strings.HasPrefix(arg, "oci://") || strings.HasPrefix(arg, "https://")
}

// TestWalkIsDocumented: what the walk says is the documents' stands there, and of what they tell to do to a
// cluster the walk leaves nothing out.
func TestWalkIsDocumented(t *testing.T) {
	t.Parallel()
	all, err := docs.All("../../..")
	if err != nil {
		t.Fatal(err)
	}
	parts, err := parseWalk(walkText)
	if err != nil || len(parts["replace"]) == 0 || len(parts["begin"]) == 0 || len(parts["end"]) == 0 {
		t.Fatalf("walk.txt has the parts %v: %v", parts, err)
	}
	walked := map[string]bool{}
	for _, part := range parts {
		for _, step := range slices.Concat(part...) {
			if step.marker != documented {
				continue
			}
			for _, c := range docs.Parse(step.command) {
				walked[line(c)] = true
			}
		}
	}
	told := map[string]bool{}
	for _, c := range all {
		if page, _, _ := strings.Cut(c.Where, ":"); !slices.Contains(pages, page) {
			continue
		}
		told[line(c)] = true
		if slices.ContainsFunc(c.Args, elsewhere) {
			continue
		}
		if (c.Program == "helm" || c.Program == "kubectl" || strings.Contains(c.Program, "/")) && !walked[line(c)] {
			t.Errorf("%s: walk.txt leaves it out", c)
		}
	}
	for command := range walked {
		if !told[command] {
			t.Errorf("walk.txt says that the documents have %q", command)
		}
	}
}

// line returns a command with no blanks in its arguments.
func line(c docs.Command) string {
	var args []string
	for _, arg := range c.Args {
		args = append(args, strings.Join(strings.Fields(arg), ""))
	}
	return c.Program + " " + strings.Join(args, " ")
}

func TestParseWalk(t *testing.T) {
	t.Parallel()
	for _, wrong := range []string{
		"$ before a part\n", "== a\n  exit 1\n", "== a\n$ x\n  exit one\n", "== a\n? x\n", "== a\n$x\n",
	} {
		if got, err := parseWalk(wrong); err == nil {
			t.Errorf("%q: %v", wrong, got)
		}
	}
	got, err := parseWalk("# text\n== a\n\n$ x\n  exit 3\n  y\n+ z\n\n@ v\n== b\n")
	if err != nil || len(got) != 1 || len(got["a"]) != 2 || len(got["a"][0]) != 2 {
		t.Fatalf("%v, %v", got, err)
	}
	if x := got["a"][0][0]; x.marker != documented || x.command != "x" || x.exit != 3 ||
		!slices.Equal(x.prints, []string{"y"}) {
		t.Errorf("the first is %v", x)
	}
	if v := got["a"][1][0]; v.marker != onNode || v.command != "v" {
		t.Errorf("the last is %v", v)
	}
}
