// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestDependabotKnowsEveryModule: the updates of Go modules are for every module of the repository.
func TestDependabotKnowsEveryModule(t *testing.T) {
	t.Parallel()
	var config struct {
		Updates []struct {
			Ecosystem   string `json:"package-ecosystem"`
			Directories []string
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, ".github/dependabot.yml")), &config); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, module := range modules(t) {
		want = append(want, "/"+strings.TrimPrefix(module, "."))
	}
	if got := config.Updates[0]; got.Ecosystem != "gomod" || !slices.Equal(got.Directories, want) {
		t.Errorf("dependabot updates %q of %s, want %q", got.Directories, got.Ecosystem, want)
	}
}

// TestActionsArePinned: a workflow names each action by its commit, with the version beside it. A tag can be
// moved to other code.
func TestActionsArePinned(t *testing.T) {
	t.Parallel()
	isWorkflow := func(name string) bool { return path.Dir(name) == ".github/workflows" }
	files := slices.DeleteFunc(repositoryFiles(t), func(name string) bool { return !isWorkflow(name) })
	if len(files) < 3 {
		t.Fatalf("workflows %q", files)
	}
	pinned := regexp.MustCompile(`^[\w./-]+@[0-9a-f]{40} # v\d+(\.\d+)*$`)
	for _, file := range files {
		uses := regexp.MustCompile(`(?m)^ +(?:- )?uses: (.*)$`).FindAllStringSubmatch(read(t, file), -1)
		if len(uses) == 0 {
			t.Errorf("%s uses no action", file)
		}
		for _, action := range uses {
			if !pinned.MatchString(action[1]) {
				t.Errorf("%s uses %s: want a commit and its version", file, action[1])
			}
		}
	}
}

// TestForms: GitHub reads the forms of issues, and each asks for a text.
func TestForms(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"bug", "feature", "server"} {
		var form struct {
			Name, Description string
			Labels            []string
			Body              []struct {
				Type, ID   string
				Attributes struct{ Label, Description, Value string }
				// Validations is unchecked: required is its only key.
				Validations struct{ Required bool }
			}
		}
		text := read(t, ".github/ISSUE_TEMPLATE/"+name+".yml")
		if err := yaml.UnmarshalStrict([]byte(text), &form); err != nil {
			t.Fatal(err)
		}
		if form.Name == "" || form.Description == "" || len(form.Body) < 3 {
			t.Errorf("%s: %+v", name, form)
		}
		for _, field := range form.Body {
			if field.Type == "textarea" && (field.ID == "" || field.Attributes.Label == "") {
				t.Errorf("%s: %+v has no ID or label", name, field)
			}
		}
		for _, command := range regexp.MustCompile(`"(?:sudo )?tandem (\w+)`).FindAllStringSubmatch(text, -1) {
			at := filepath.Join(root, "cmd/tandem", command[1])
			_, err := os.Stat(at + ".go")
			if _, other := os.Stat(at + "/command.go"); err != nil && other != nil {
				t.Errorf("%s names tandem %s: %v", name, command[1], err)
			}
		}
	}
}
