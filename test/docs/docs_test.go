// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const root = "../.."

// TestEveryCommandIsRun: whatever program the documents show, there is a test that takes all of its commands
// from here.
func TestEveryCommandIsRun(t *testing.T) {
	t.Parallel()
	all, err := All(root)
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, c := range all {
		count[c.Program]++
	}
	for program, test := range Programs {
		if !strings.Contains(read(t, test), strconv.Quote(program)) {
			t.Errorf("%s does not run %s", test, program)
		}
		if count[program] == 0 {
			t.Errorf("no document shows %s", program)
		}
	}
	t.Logf("%d commands: %v", len(all), count)
}

// TestMake: the targets and their variables are there. To run them is what CI does.
func TestMake(t *testing.T) {
	t.Parallel()
	commands, err := Of(root, "make")
	if err != nil {
		t.Fatal(err)
	}
	makefile, seen := read(t, "Makefile"), map[string]bool{}
	for _, c := range commands {
		for _, arg := range c.Args {
			if name, _, isVariable := strings.Cut(arg, "="); isVariable &&
				!strings.Contains(makefile, "$("+name+")") {
				t.Errorf("%s: the Makefile has no %s", c, name)
			}
		}
		if line := strings.Join(c.Args, " "); !seen[line] {
			seen[line] = true
			dry := exec.Command("make", append([]string{"-C", root, "--dry-run"}, c.Args...)...)
			if out, err := dry.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", c, err, out)
			}
		}
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	const text = "Text with `tandem topo -v`, `tandem`, `kubectl apply -k a && kubectl logs -f job/b` " +
		"and `other x`.\n" +
		"```sh\nmake demo   # a 'comment\nsudo tandem topo -o html >node.html | helm list\n```\n" +
		"```console\n$ bin/tandem plan\nmake a\n\n  b\n```\n" +
		"```yaml\nmake: none\n```\n\n" +
		"       kubectl patch x -p '{\"a\":\n         1}'\n\n    helm install \\\n      y\n    no command\n"
	want := []Command{
		{"F:1", "tandem", []string{"topo", "-v"}, "", ""},
		{"F:1", "kubectl", []string{"apply", "-k", "a"}, "", ""},
		{"F:1", "kubectl", []string{"logs", "-f", "job/b"}, "", ""},
		{"F:3", "make", []string{"demo"}, "", ""},
		{"F:4", "tandem", []string{"topo", "-o", "html"}, "node.html", ""},
		{"F:4", "helm", []string{"list"}, "", ""},
		{"F:7", "tandem", []string{"plan"}, "", "make a\n\n  b\n"},
		{"F:16", "kubectl", []string{"patch", "x", "-p", "{\"a\":\n         1}"}, "", ""},
		{"F:19", "helm", []string{"install", "y"}, "", ""},
	}
	got, err := find("F", text)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, wrong := range []string{"```sh\nwget x\n```\n", "    tandem 'x\n"} {
		if got, err := find("F", wrong); err == nil {
			t.Errorf("%q: %v", wrong, got)
		}
	}
}
