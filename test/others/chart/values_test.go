// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pmezard/go-difflib/difflib"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/tandem-k8s/tandem/coordination/version"
	"github.com/tandem-k8s/tandem/test/golden"
	helm "github.com/tandem-k8s/tandem/test/others/chart/render"
)

// TestValues: testdata/values.txt has the effect of single values. A line of the file starts with
//
//	#     a comment
//	base  values in addition to the defaults, which are the first base
//	$     values in addition to the base, behind a version of Kubernetes if it is not the newest
//
// and with two blanks what these values change, or why they are refused.
func TestValues(t *testing.T) {
	const file = "testdata/values.txt"
	content, err := os.ReadFile(file)
	ready(t, err)
	e := newEffects(t)
	var got strings.Builder
	var base map[string]any
	var defaults, plain documents // of the first base, and of the current one
	command := regexp.MustCompile(`^(base|\$) (?:(v1\.\S+) )?(.*)`)
	for line := range strings.Lines(string(content)) {
		if strings.HasPrefix(line, "  ") {
			continue // is written anew
		}
		got.WriteString(line)
		switch found := command.FindStringSubmatch(line); {
		case found == nil && strings.Trim(line[:1], "#\n") != "":
			t.Fatalf("what is %q?", line)
		case found == nil:
		case found[1] == "base":
			base = given(t, found[3])
			if plain, err = e.read(helm.Newest, base); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			got.WriteString(e.of(defaults, plain))
			e.learn(plain)
			if defaults == nil {
				defaults = plain
			}
		default:
			kubernetes := found[2]
			if kubernetes == "" {
				kubernetes = helm.Newest
			}
			if changed, err := e.read(kubernetes, loader.MergeMaps(base, given(t, found[3]))); err != nil {
				got.WriteString(refusal(err))
			} else {
				got.WriteString(e.of(plain, changed))
				e.learn(changed)
			}
		}
	}
	golden.Check(t, file, got.String())
}

// documents are the notes and the objects of a rendered chart, by name, without comments.
type documents map[string]string

// effects describes changes of documents.
type effects struct {
	t     *testing.T
	known map[string]bool // objects in golden files, or described earlier
}

func newEffects(t *testing.T) *effects {
	t.Helper()
	e := &effects{t: t, known: map[string]bool{}}
	for name, values := range cases(t) {
		d, err := e.read(helm.Newest, given(t, values))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		delete(d, "NOTES.txt") // is in no golden file, like the pod of "helm test"
		delete(d, "Pod/tandem-verify")
		e.learn(d)
	}
	return e
}

func (e *effects) learn(d documents) {
	for _, document := range d {
		e.known[document] = true
	}
}

// read renders the chart. The API server decodes all objects: digits alone, for example, are a legal name,
// and without quotes a number in YAML.
func (e *effects) read(kubernetes string, values map[string]any) (documents, error) {
	e.t.Helper()
	_, files, err := helm.Files(chartDir, namespace, kubernetes, values)
	all := documents{}
	api := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme,
		json.SerializerOptions{Yaml: true, Strict: true})
	for file, content := range files {
		if !strings.HasSuffix(file, ".yaml") {
			all[path.Base(file)] = content
			continue
		}
		for manifest := range strings.SplitSeq("\n"+content, "\n---\n") {
			if strings.TrimSpace(manifest) == "" {
				continue
			}
			if _, _, err := api.Decode([]byte(manifest), nil, nil); err != nil && !runtime.IsNotRegisteredError(err) {
				e.t.Errorf("%v in %s:\n%s", err, file, manifest)
			}
			all[parse(e.t, manifest)[0].name()] = regexp.MustCompile(`(?m)^ *#.*\n`).
				ReplaceAllString(strings.TrimSpace(manifest), "")
		}
	}
	return all, err
}

// of returns what is different after a change: the lines, or the name of an object that is gone or known.
func (e *effects) of(before, after documents) string {
	var text strings.Builder
	names := documents{}
	maps.Copy(names, before)
	maps.Copy(names, after)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		switch was, is := before[name], after[name]; {
		case is == was:
		case is == "":
			text.WriteString("  - " + name + "\n")
		case was == "" && e.known[is]:
			text.WriteString("  + " + name + "\n")
		default:
			text.WriteString("  " + name + "\n" + difference(was, is))
		}
	}
	// A release changes nothing here.
	return strings.ReplaceAll(text.String(), version.Of(nil), "VERSION")
}

// difference returns the lines of before alone with "-", and those of after alone with "+".
func difference(before, after string) string {
	var text strings.Builder
	isEnd := func(r rune) bool { return r == '\n' }
	a, b := strings.FieldsFunc(before, isEnd), strings.FieldsFunc(after, isEnd)
	for _, o := range difflib.NewMatcherWithJunk(a, b, false, nil).GetOpCodes() {
		if o.Tag == 'e' {
			continue
		}
		for _, line := range a[o.I1:o.I2] {
			text.WriteString("  -" + line + "\n")
		}
		for _, line := range b[o.J1:o.J2] {
			text.WriteString("  +" + line + "\n")
		}
	}
	return text.String()
}

// refusal is what a person reads of Helm's errors: without the place in the templates.
func refusal(err error) string {
	place := regexp.MustCompile(`(?s).*(execution error at \([^)]*\): |tandem:\n)`)
	text := place.ReplaceAllString(err.Error(), "")
	return "  ! " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ") + "\n"
}
