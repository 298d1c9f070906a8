// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/tandem-k8s/tandem/test/golden"
)

const readmeHead = `# Chart tandem

Places a container's GPUs and RDMA VFs on the same PCIe switch, with an unmodified kubelet.
[Install](https://github.com/tandem-k8s/tandem/blob/main/docs/install.md) and
[Releases](https://github.com/tandem-k8s/tandem/blob/main/docs/release.md) describe installation and upgrades.

"helm test" starts a pod that requests GPUs and VFs, and fails unless each of its pairs is on one switch. The
directory presets contains values for common configurations, to be passed with -f.

## Values

"go test -run README -update ." in the directory test/others/chart generates this table from values.yaml.

| Value | Default | |
|---|---|---|
`

// TestREADME: the chart's README has every value, its default and what values.yaml says of it.
func TestREADME(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(chartDir, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		t.Fatal(err)
	}
	got := readmeHead + strings.Join(rows(t, "", document.Content[0]), "")
	golden.Check(t, filepath.Join(chartDir, "README.md"), got)
	if len(regexp.MustCompile("(?m)^\\| `").FindAllString(got, -1)) < 60 {
		t.Errorf("too few values:\n%s", got)
	}
}

// rows are those of a mapping's keys. A mapping is one value where nothing is said of what is in it.
func rows(t *testing.T, prefix string, mapping *yaml.Node) (all []string) {
	t.Helper()
	for i := 0; i < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		name := prefix + key.Value
		text := cell(key.HeadComment, key.LineComment, value.LineComment)
		if value.Kind == yaml.MappingNode && remarks(value) {
			if text != "" {
				all = append(all, fmt.Sprintf("| `%s` | | %s |\n", name, text))
			}
			all = append(all, rows(t, name+".", value)...)
			continue
		}
		all = append(all, fmt.Sprintf("| `%s` | `%s` | %s |\n", name, compact(t, value), text))
	}
	return all
}

// remarks reports whether something is said of the keys of a mapping, whose own remark stands at its key.
func remarks(mapping *yaml.Node) bool {
	return slices.ContainsFunc(mapping.Content, func(n *yaml.Node) bool {
		return n.HeadComment+n.LineComment != "" || n.Kind == yaml.MappingNode && remarks(n)
	})
}

// cell joins comments into one line. In values.yaml a first paragraph stands above the whole file.
func cell(comments ...string) string {
	var words []string
	for _, comment := range comments {
		if _, after, found := strings.Cut(comment, "\n\n"); found {
			comment = after
		}
		for line := range strings.Lines(comment) {
			words = append(words, strings.Fields(strings.TrimLeft(line, "# "))...)
		}
	}
	return strings.ReplaceAll(strings.Join(words, " "), "|", `\|`)
}

// compact is a default as JSON on one line.
func compact(t *testing.T, value *yaml.Node) string {
	t.Helper()
	var decoded any
	if err := value.Decode(&decoded); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(decoded)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
