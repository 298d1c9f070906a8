// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"sigs.k8s.io/yaml"

	"github.com/tandem-k8s/tandem/coordination/version"
	"github.com/tandem-k8s/tandem/test/docs"
	"github.com/tandem-k8s/tandem/test/golden"
	helm "github.com/tandem-k8s/tandem/test/others/chart/render"
	"github.com/tandem-k8s/tandem/test/programs"
)

// cases are the values in testdata, by name.
func cases(t *testing.T) map[string]string {
	t.Helper()
	return readValues(t, "testdata/*.values.yaml", 4)
}

// readValues reads files of values, at least so many, by the name without extension.
func readValues(t *testing.T, pattern string, least int) map[string]string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) < least {
		t.Fatalf("%s: %q, %v", pattern, files, err)
	}
	all := map[string]string{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		ready(t, err)
		name, _, _ := strings.Cut(filepath.Base(file), ".")
		all[name] = string(content)
	}
	return all
}

func TestGolden(t *testing.T) {
	for name, values := range cases(t) {
		got, err := render(t, values)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got = strings.ReplaceAll(got, version.Of(nil), "VERSION") // a release changes nothing here
		file := filepath.Join("testdata", name+".golden.yaml")
		golden.Check(t, file, got)
	}
}

// TestKustomizations: what kustomize builds is what the chart renders.
func TestKustomizations(t *testing.T) {
	for _, c := range []struct {
		dirs, kubernetes, values string
		objects                  string // a part of the names of those that are compared
	}{
		// Kubernetes 1.28 and 1.29 do not know the policies of alignment.
		{"base alignment", helm.Newest, "", ""},
		{"dra dra/claim-templates", helm.Newest, "{mode: dra, dra: {claimTemplates: {namespaces: [team]}}}", ""},
		{"privileged alignment", helm.Newest, "gpu: {privileged: true}", ""},
		{"intent-kubelet alignment", "v1.36.3", "", ""},
		{"publish", helm.Newest, "publish: [tandem, nrt, nfd]", "-publish"},
		{"scheduler", helm.Newest, "{publish: [tandem], scheduler: {enabled: true}}", "tandem-scheduler"},
	} {
		t.Run(c.dirs, func(t *testing.T) {
			var built strings.Builder
			for dir := range strings.FieldsSeq(c.dirs) {
				built.WriteString(kustomize(t, "../../../deployments/"+dir) + "---\n")
			}
			rendered, err := renderOn(t, c.kubernetes, c.values)
			ready(t, err)
			other := func(o object) bool { return !strings.Contains(o.name(), c.objects) }
			if diff := cmp.Diff(slices.DeleteFunc(plain(t, parse(t, built.String())), other),
				slices.DeleteFunc(plain(t, parse(t, rendered)), other)); diff != "" {
				t.Errorf("-kustomize +chart:\n%s", diff)
			}
		})
	}
}

// plain takes out what a chart and a base say in different ways: labels, the mark of the configuration, the
// layout of JSON and YAML, the order of flags, mounts and volumes, and namespaces in the names of the
// cluster's objects, and those that kustomize adds.
func plain(t *testing.T, objects []object) []object {
	t.Helper()
	for _, o := range objects {
		metadata := o["metadata"].(map[string]any)
		for _, named := range []any{metadata, o["roleRef"], o["spec"]} {
			for _, key := range []string{"name", "policyName"} {
				if fields, _ := named.(map[string]any); fields[key] != nil {
					fields[key] = strings.TrimPrefix(fields[key].(string), namespace+"-")
				}
			}
		}
		kind, _ := o["kind"].(string)
		if kind == "ResourceClaimTemplate" || strings.HasPrefix(kind, "ValidatingAdmission") {
			delete(metadata, "namespace")
		}
		for _, path := range [][]string{{"metadata"}, {"spec", "selector"}, {"spec", "template", "metadata"}} {
			if fields, ok := o.at(path...).(map[string]any); ok {
				delete(fields, "labels")
				delete(fields, "matchLabels")
				if annotations, ok := fields["annotations"].(map[string]any); ok {
					delete(annotations, "tandem.dev/config")
					if len(annotations) == 0 {
						delete(fields, "annotations")
					}
				}
			}
		}
		if data, ok := o.at("data").(map[string]any); ok {
			for key, text := range data {
				var value any
				ready(t, yaml.Unmarshal([]byte(text.(string)), &value))
				data[key] = value
			}
		}
		if spec, ok := o.at("spec", "template", "spec").(map[string]any); ok {
			container := spec["containers"].([]any)[0].(map[string]any)
			for _, list := range [][]any{
				spec["volumes"].([]any), container["args"].([]any), container["volumeMounts"].([]any),
			} {
				slices.SortFunc(list, func(a, b any) int { return strings.Compare(text(a), text(b)) })
			}
		}
	}
	slices.SortFunc(objects, func(a, b object) int { return strings.Compare(a.name(), b.name()) })
	return objects
}

func text(value any) string {
	content, _ := json.Marshal(value) // of YAML
	return string(content)
}

func TestLint(t *testing.T) {
	for name, values := range everyValues(t) {
		given := map[string]any{}
		ready(t, yaml.Unmarshal([]byte(values), &given))
		for _, message := range lint.RunAll(chartDir, given, namespace).Messages {
			if !strings.Contains(message.Error(), "icon is recommended") {
				t.Errorf("%s: %v", name, message)
			}
		}
	}
}

// TestFlagsExist: every flag that a manifest sets is one of the program's.
func TestFlagsExist(t *testing.T) {
	daemons := []string{"tandem-gpu", "tandem-rdma", "tandem-dra", "config-manager"}
	bin, known := programs.Build(t, daemons...), map[string][]string{}
	for _, program := range daemons {
		help, err := exec.Command(filepath.Join(bin, program), "--help").Output()
		ready(t, err)
		for _, flag := range regexp.MustCompile(`(?m)^ +(?:-\w, )?--([\w-]+)`).
			FindAllStringSubmatch(string(help), -1) {
			known[program] = append(known[program], flag[1])
		}
	}
	documented, err := docs.Of("../../..", "tandem-gpu")
	ready(t, err)
	for _, c := range documented {
		if out, err := exec.Command(filepath.Join(bin, c.Program), c.Args...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", c, err, out)
		}
	}
	var streams []string
	for _, dir := range []string{"base", "privileged", "dra"} {
		streams = append(streams, kustomize(t, "../../../deployments/"+dir))
	}
	for _, values := range everyValues(t) {
		rendered, err := render(t, values)
		ready(t, err)
		streams = append(streams, rendered)
	}
	checked := 0
	for _, stream := range streams {
		for _, o := range parse(t, stream) {
			containers, _ := o.at("spec", "template", "spec", "containers").([]any)
			first, _ := o.at("spec", "template", "spec", "initContainers").([]any)
			for _, c := range slices.Concat(first, containers) {
				c := c.(map[string]any)
				if c["name"] == "tandem-scheduler" {
					continue // kube-scheduler's flags, and a module of its own, which takes minutes to build
				}
				program := c["command"].([]any)[0].(string)
				for _, arg := range c["args"].([]any) {
					name, _, _ := strings.Cut(strings.TrimLeft(arg.(string), "-"), "=")
					checked++
					if !slices.Contains(known[program], name) {
						t.Errorf("%s sets --%s, which %s does not have", o.name(), name, program)
					}
				}
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d flags were checked", checked)
	}
}
