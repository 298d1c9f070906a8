// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"helm.sh/helm/v4/pkg/strvals"
	"sigs.k8s.io/yaml"

	"github.com/tandem-k8s/tandem/test/docs"
	helm "github.com/tandem-k8s/tandem/test/others/chart/render"
)

// Where a release is, beside its image (values.yaml).
const (
	releasedChart = "oci://ghcr.io/tandem-k8s/charts/tandem"
	released      = "https://github.com/tandem-k8s/tandem/releases/download/v"
)

// TestDocumentedHelm renders the chart as every helm command of the documents does.
func TestDocumentedHelm(t *testing.T) {
	for _, c := range documented(t, "helm") {
		if slices.Contains(c.Args, "--repo") {
			continue // a chart of others
		}
		flags := pflag.NewFlagSet("helm", pflag.ContinueOnError)
		files, namespace := flags.StringArrayP("values", "f", nil, ""), flags.StringP("namespace", "n", "", "")
		sets, jsons := flags.StringArray("set", nil, ""), flags.StringArray("set-json", nil, "")
		flags.String("version", "", "")
		// Not --reuse-values, which takes the values of an older chart alone, without what a newer one has.
		for _, name := range []string{"reset-then-reuse-values", "wait", "logs"} {
			flags.Bool(name, false, "")
		}
		if err := flags.Parse(c.Args); err != nil || *namespace == "" {
			t.Errorf("%s: %v, namespace %q", c, err, *namespace)
		}
		for i, file := range *files {
			(*files)[i] = filepath.Join("../../..", file)
		}
		values, err := helm.Values(*files...)
		for _, setting := range *sets {
			err = errors.Join(err, strvals.ParseInto(setting, values))
		}
		for _, setting := range *jsons {
			err = errors.Join(err, strvals.ParseJSON(setting, values))
		}
		if err != nil {
			t.Errorf("%s: %v", c, err)
		}
		rest := flags.Args()
		if len(rest) == 2 && slices.Contains([]string{"uninstall", "test", "rollback"}, rest[0]) {
			continue
		}
		if len(rest) != 3 || !slices.Contains([]string{"install", "upgrade"}, rest[0]) ||
			"../../../"+rest[2] != chartDir && rest[2] != releasedChart {
			t.Errorf("%s: want install or upgrade NAME %s", c, chartDir)
		}
		if rendered, err := render(t, text(values)); err != nil || len(parse(t, rendered)) < 2 {
			t.Errorf("%s: %v", c, err)
		}
	}
}

// pages are the contents of the documents, by file.
func pages(t *testing.T) map[string]string {
	t.Helper()
	files, err := docs.Files("../../..")
	ready(t, err)
	all := map[string]string{}
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join("../../..", file))
		ready(t, err)
		all[file] = string(content)
	}
	return all
}

// TestDocumentedValues: what the guides say to set, in a command or beside one, are values of the chart too.
// What stands in one piece of code belongs together.
func TestDocumentedValues(t *testing.T) {
	settings := regexp.MustCompile(`(--set(?:-json)?) '?([\w.]+=[^\s']+)`)
	count := 0
	for file, content := range pages(t) {
		for code := range strings.FieldsFuncSeq(content, func(r rune) bool { return r == '`' || r == '\n' }) {
			values := map[string]any{}
			for _, s := range settings.FindAllStringSubmatch(code, -1) {
				count++
				set := strvals.ParseInto
				if s[1] == "--set-json" {
					set = strvals.ParseJSON
				}
				if err := set(s[2], values); err != nil {
					t.Errorf("%s sets %s: %v", file, s[2], err)
				}
			}
			if len(values) == 0 {
				continue
			}
			if _, err := render(t, text(values)); err != nil {
				t.Errorf("%s: %s: %v", file, code, err)
			}
		}
	}
	if count < 20 {
		t.Errorf("the documents set %d values", count)
	}
}

// TestDocumentedMistakes: helm rejects a wrong pool as the table says.
func TestDocumentedMistakes(t *testing.T) {
	mistakes, err := docs.Mistakes("../../..")
	ready(t, err)
	for _, m := range mistakes {
		_, err := render(t, "rdma: {config: "+m.Config()+"}")
		if m.Helm == "-" && err != nil || m.Helm != "-" && (err == nil || !strings.Contains(err.Error(), m.Helm)) {
			t.Errorf("%s: %v, want %q", m.Pool, err, m.Helm)
		}
	}
}

// TestNamedValues: values of the chart that the documents name by themselves are there.
func TestNamedValues(t *testing.T) {
	values, err := helm.Values(filepath.Join(chartDir, "values.yaml"))
	ready(t, err)
	named := regexp.MustCompile("`((?:cdi|gpu|metrics|rdma|scheduler|topologyFile)\\.[\\w.]+)`")
	count := 0
	for file, content := range pages(t) {
		for _, found := range named.FindAllStringSubmatch(content, -1) {
			if strings.HasSuffix(found[1], ".tandem.dev") {
				continue // a DeviceClass
			}
			count++
			at := any(values)
			for key := range strings.SplitSeq(found[1], ".") {
				inner, _ := at.(map[string]any)
				at = inner[key] // nil where there is none
			}
			if at == nil {
				t.Errorf("%s: the chart has no value %s", file, found[1])
			}
		}
	}
	if count < 10 {
		t.Errorf("the documents name %d values", count)
	}
}

// verbs of kubectl that the documents use on what others have made, and its plugin, whose commands the tests
// of cmd/tandem run.
var verbs = []string{
	"apply", "cordon", "delete", "describe", "drain", "exec", "get", "label", "logs", "patch", "rollout", "set",
	"tandem", "uncordon", "wait",
}

// TestDocumentedKubectl: what the kubectl commands of the documents name is there: folders, files, objects,
// labels, fields of a patch. make e2e runs kubectl itself, against an API server.
func TestDocumentedKubectl(t *testing.T) {
	base := kustomize(t, "../../../deployments/base")
	var names []string
	for _, objects := range manifests(t) {
		for _, o := range objects {
			names = append(names, strings.ToLower(o.name()))
		}
	}
	object := regexp.MustCompile(`^(ds|daemonset|job)/(tandem.*)$`)
	for _, c := range documented(t, "kubectl") {
		if !slices.ContainsFunc(c.Args, func(arg string) bool { return slices.Contains(verbs, arg) }) {
			t.Errorf("%s: which verb?", c)
		}
		for i, arg := range c.Args {
			before := ""
			if i > 0 {
				before = c.Args[i-1]
			}
			key, _, isLabel := strings.Cut(strings.TrimSuffix(arg, "-"), "=")
			m := object.FindStringSubmatch(arg)
			switch {
			case before == "-k" && !slices.Contains(kustomizations, arg):
				t.Errorf("%s: %s is none of %q", c, arg, kustomizations)
			case before == "-f" && strings.HasPrefix(arg, released) && strings.HasSuffix(arg, "/release.yaml"):
				// make release makes it
			case before == "-f" && m == nil && len(manifest(t, arg)) == 0:
				t.Errorf("%s: %s has no object", c, arg)
			case before == "-p":
				checkPatch(t, c, base, arg)
			case strings.HasPrefix(key, "tandem.dev/") && (isLabel || strings.HasSuffix(arg, "-")) &&
				!strings.Contains(base, key) && !chosen(t, key):
				t.Errorf("%s: nothing in deployments/base, and no node selector, looks at the label %s", c, key)
			case m != nil && !slices.Contains(names, strings.Replace(m[1], "ds", "daemonset", 1)+"/"+m[2]):
				t.Errorf("%s: there is no %s", c, arg)
			}
		}
	}
}

// chosen reports whether a documented installation chooses nodes by a label.
func chosen(t *testing.T, label string) bool {
	t.Helper()
	return slices.ContainsFunc(documented(t, "helm"), func(c docs.Command) bool {
		return slices.ContainsFunc(c.Args, func(arg string) bool {
			return strings.Contains(arg, "nodeSelector") && strings.Contains(arg, `"`+label+`"`)
		})
	})
}

func documented(t *testing.T, program string) []docs.Command {
	t.Helper()
	commands, err := docs.Of("../../..", program)
	if err != nil || len(commands) == 0 {
		t.Fatalf("documented are %v, %v", commands, err)
	}
	return commands
}

func manifest(t *testing.T, file string) []object {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("../../..", file))
	ready(t, err)
	return parse(t, string(content))
}

// checkPatch merges a patch of a DaemonSet into one of ours and looks whether Kubernetes knows all the
// fields. Those of other kinds belong to operators, and are JSON.
func checkPatch(t *testing.T, c docs.Command, base, patch string) {
	t.Helper()
	if !json.Valid([]byte(patch)) {
		t.Errorf("%s: the patch is no JSON", c)
		return
	}
	if !slices.Contains(c.Args, "daemonset") {
		return
	}
	for _, o := range parse(t, base) {
		if o.at("kind") != "DaemonSet" {
			continue
		}
		merged, err := jsonpatch.MergePatch([]byte(text(o)), []byte(patch))
		var after map[string]any
		if err == nil {
			err = yaml.Unmarshal(merged, &after)
		}
		if err != nil {
			t.Fatalf("%s: %v", c, err)
		}
		schema, err := published(t, versions[len(versions)-1])("apps/v1", "DaemonSet")
		ready(t, err)
		if err := schema.Validate(after); err != nil || text(after) == text(o) {
			t.Errorf("%s: %v", c, err)
		}
	}
}

// TestNotes: the chart's notes name pages and DaemonSets that are there, and nothing that a user of the
// packed chart lacks.
func TestNotes(t *testing.T) {
	for name, values := range everyValues(t) {
		notes := renderFile(t, values, "NOTES.txt")
		checkPages(t, name, notes)
		for _, lacked := range []string{" -f ", "deployments/"} {
			if strings.Contains(strings.ReplaceAll(notes, "/blob/main/", ""), lacked) {
				t.Errorf("%s: the notes have %q:\n%s", name, lacked, notes)
			}
		}
		objects := install(t, values)
		for _, set := range regexp.MustCompile(`daemonset/([\w-]+)`).FindAllStringSubmatch(notes, -1) {
			if !slices.ContainsFunc(objects, func(o object) bool { return o.name() == "DaemonSet/"+set[1] }) {
				t.Errorf("%s: the notes name a DaemonSet %s", name, set[1])
			}
		}
	}
}

// checkPages makes sure that the pages and headings of the repository that a text names are there.
func checkPages(t *testing.T, where, text string) {
	t.Helper()
	const pages = "https://github.com/tandem-k8s/tandem/blob/main/"
	for _, page := range regexp.MustCompile(pages+`([\w/.-]+)(?:#([\w-]+))?`).FindAllStringSubmatch(text, -1) {
		content, err := os.ReadFile(filepath.Join("../../..", page[1]))
		heading := regexp.MustCompile(`(?mi)^#+ ` + strings.ReplaceAll(page[2], "-", "[ -]") + `$`)
		if err != nil || page[2] != "" && !heading.Match(content) {
			t.Errorf("%s: %s is not there: %v", where, page[0], err)
		}
	}
}
