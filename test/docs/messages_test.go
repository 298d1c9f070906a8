// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// ofOthers are the symptoms that Kubernetes and container runtimes print.
var ofOthers = []string{
	"Init", "Requested: 2, Available: 1", "UnexpectedAdmissionError", "hostPath type check failed",
	"device-plugins/kubelet_internal_checkpoint", "unresolvable CDI devices",
}

// TestMessages: the events, symptoms and reasons in the tables of docs/troubleshoot.md, in backquotes, and
// docs/dra.md, in quotation marks, are texts of the code.
func TestMessages(t *testing.T) {
	t.Parallel()
	code := productCode(t)
	count := 0
	for line := range strings.Lines(prose(read(t, "docs/troubleshoot.md"))) {
		first, cells := rowOf(line)
		for _, span := range quoted.FindAllStringSubmatch(first, -1) {
			text := span[1]
			if len(cells) != 3 || slices.Contains(ofOthers, text) || strings.HasPrefix(text, "/dev/") ||
				strings.HasPrefix(text, "tandem ") { // a file; a command
				continue
			}
			count++
			if !strings.Contains(code, text) {
				t.Errorf("docs/troubleshoot.md: no code has the text %q", text)
			}
		}
	}
	for line := range strings.Lines(prose(read(t, "docs/dra.md"))) {
		first, _ := rowOf(line)
		for _, text := range regexp.MustCompile(`"([^"]+)"`).FindAllStringSubmatch(first, -1) {
			count++
			if !slices.Contains(ofOthers, text[1]) && !strings.Contains(code, text[1]) {
				t.Errorf("docs/dra.md: no code has the text %q", text[1])
			}
		}
	}
	if count < 25 {
		t.Errorf("found only %d messages", count)
	}
}

// productCode returns the code of the product, with the parts of texts on several lines put together.
func productCode(t *testing.T) string {
	t.Helper()
	code := goCode(t, "cmd", "coordination", "plugins", "topology")
	return regexp.MustCompile(`" \+\s+"`).ReplaceAllString(code, "")
}

// goCode returns the code below folders, without tests.
func goCode(t *testing.T, folders ...string) string {
	t.Helper()
	var all strings.Builder
	for _, name := range goFiles(t, folders...) {
		all.WriteString(read(t, name))
	}
	return all.String()
}

// listed are names of the code that a document lists: the file, the part of the file, the names in the part.
var listed = []struct{ document, file, part, name string }{
	{"docs/tune.md", "plugins/rdma/pools/config.go", `type Tandem struct [^}]*`, `json:"(\w+)"`},
	{"docs/tune.md", "plugins/rdma/pools/config.go", `var PairVariables = [^}]*}[^}]*`, `"(\w+)"`},
	{"docs/cluster.md", "coordination/intent/policy.go", `(?s)choosers = .*?\n}\n`, `{"(\S+)", parse`},
	{"docs/cluster.md", "coordination/publish/labels.go", `(?s)const \(.*?\n\)`, `"(tandem\.dev/[\w-]+)"`},
	{"docs/cluster.md", "coordination/publish/objects.go", `(?s)const \(.*?\n\)`, `(?m)^\t\w+ += "(\w+)" +//`},
	{"docs/tools.md", "topology/distance.go", `levelNames = .*`, `"(\w+)"`},
	{"docs/tools.md", "test/playground/prompt.go", `(?s).*`, `{name: "(\w+)", (?:words|about)`},
}

// TestListed: documents list all keys, variables, annotations, labels, targets, distances and commands.
func TestListed(t *testing.T) {
	t.Parallel()
	for _, l := range listed {
		page := read(t, l.document)
		part := regexp.MustCompile(l.part).FindString(read(t, l.file))
		names := regexp.MustCompile(l.name).FindAllStringSubmatch(part, -1)
		if len(names) < 3 {
			t.Errorf("%s has the names %q", l.file, names)
		}
		for _, name := range names {
			if !regexp.MustCompile("[`\"]" + regexp.QuoteMeta(name[1]) + "[`\" ]").MatchString(page) {
				t.Errorf("%s does not list %s of %s", l.document, name[1], l.file)
			}
		}
	}
}
