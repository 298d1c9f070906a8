// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/tandem-k8s/tandem/test/golden"
)

const readmeHead = `# Chart tandem

Places a container's GPUs and RDMA VFs on the same PCIe switch, with an unmodified kubelet.
[Install](https://github.com/tandem-k8s/tandem/blob/main/docs/install.md) and
[Releases](https://github.com/tandem-k8s/tandem/blob/main/docs/release.md) describe installation and upgrades. The directory presets has
values for common configurations, to be passed with -f.

## Values

With their defaults, unless empty or long. "helm show values" prints all values with full descriptions. gpu, rdma, dra and scheduler also have
nodeSelector, affinity, tolerations, resources, podAnnotations, podLabels and extraArgs.
"go test -run README -update ." in test/others/chart generates this list.

`

// podSettings are the keys that each workload has.
var podSettings = []string{
	"nodeSelector", "affinity", "tolerations", "resources", "podAnnotations", "podLabels", "extraArgs",
}

// TestREADME: the chart's README has every value but the settings of pods, its default and the first sentence
// of values.yaml about it.
func TestREADME(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(chartDir, "values.yaml"))
	ready(t, err)
	var document yaml.Node
	ready(t, yaml.Unmarshal(content, &document))
	got := readmeHead + strings.Join(items(t, "", document.Content[0]), "")
	golden.Check(t, filepath.Join(chartDir, "README.md"), got)
	if strings.Count(got, "\n- `") < 60 {
		t.Errorf("too few values:\n%s", got)
	}
}

// items are those of a mapping's keys. Keys without a comment are together in the last item. A mapping is one
// value if no comment is about its keys.
func items(t *testing.T, prefix string, mapping *yaml.Node) (all []string) {
	t.Helper()
	var plain []string
	for i := 0; i < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		if prefix != "" && slices.Contains(podSettings, key.Value) {
			continue
		}
		name := "`" + prefix + key.Value + "`"
		text := sentence(comment(key.HeadComment, key.LineComment, value.LineComment))
		inner := value.Kind == yaml.MappingNode && remarks(value)
		if !inner {
			name += byDefault(t, value)
		}
		if text != "" {
			all = append(all, "- "+name+": "+text+"\n")
		} else if !inner {
			plain = append(plain, name)
		}
		if inner {
			all = append(all, items(t, prefix+key.Value+".", value)...)
		}
	}
	if len(plain) > 0 {
		all = append(all, "- "+strings.Join(plain, ", ")+"\n")
	}
	return all
}

// remarks reports whether something is said of the keys of a mapping, whose own remark stands at its key.
func remarks(mapping *yaml.Node) bool {
	return slices.ContainsFunc(mapping.Content, func(n *yaml.Node) bool {
		return n.HeadComment+n.LineComment != "" || n.Kind == yaml.MappingNode && remarks(n)
	})
}

// comment joins comments into one line. In values.yaml a first paragraph stands above the whole file.
func comment(comments ...string) string {
	var words []string
	for _, comment := range comments {
		if _, after, found := strings.Cut(comment, "\n\n"); found {
			comment = after
		}
		for line := range strings.Lines(comment) {
			words = append(words, strings.Fields(strings.TrimLeft(line, "# "))...)
		}
	}
	return strings.Join(words, " ")
}

// sentence returns the first sentence of a text, without the full stop.
func sentence(text string) string {
	first, _, _ := strings.Cut(text+" ", ". ")
	return strings.TrimSpace(first)
}

// byDefault returns " (DEFAULT)" as JSON on one line, "" for an empty default or one of more than 40 bytes.
func byDefault(t *testing.T, value *yaml.Node) string {
	t.Helper()
	var decoded any
	ready(t, value.Decode(&decoded))
	text, err := json.Marshal(decoded)
	ready(t, err)
	if slices.Contains([]string{`""`, "[]", "{}"}, string(text)) || len(text) > 40 {
		return ""
	}
	return " (`" + strings.Trim(string(text), `"`) + "`)"
}
