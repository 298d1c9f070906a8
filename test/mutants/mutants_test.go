// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each mutant applies to the code as it is now.
func TestTables(t *testing.T) {
	mutants, err := readTables()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		content, err := os.ReadFile(filepath.Join("../..", m.file))
		if err != nil {
			t.Errorf("mutant %s: %v", m.name, err)
			continue
		}
		mutated, err := m.apply(string(content))
		if err != nil {
			t.Error(err)
		} else if mutated == string(content) {
			t.Errorf("mutant %s changes nothing", m.name)
		}
		if tests, _ := filepath.Glob(filepath.Join("../..", m.folder, "*_test.go")); len(tests) == 0 {
			t.Errorf("mutant %s: no tests in %s", m.name, m.folder)
		}
	}
}

const example = `# A comment.
mutant area/name
why it decides the wrong way
file file.go
test folder -run ^Test$ -short
 	if a {
-		return b
+		return c
`

func TestParse(t *testing.T) {
	all, err := parse(example)
	if err != nil || len(all) != 1 {
		t.Fatalf("parsed %v, %v", all, err)
	}
	if m := all[0]; m.name != "area/name" || m.folder != "folder" || len(m.arguments) != 3 {
		t.Errorf("parsed %+v", m)
	}
	for _, wrong := range []string{
		strings.Replace(example, "why", "because", 1),
		strings.Replace(example, "why it decides the wrong way\n", "", 1),
		strings.Replace(example, "test folder -run ^Test$ -short", "test ", 1),
		"why there is no mutant before",
	} {
		if all, err := parse(wrong); err == nil {
			t.Errorf("parsed %v from %q", all, wrong)
		}
	}
}

func TestApply(t *testing.T) {
	all, _ := parse(example)
	for content, want := range map[string]string{
		"x\n\tif a {\n\t\treturn b\n\t}\n":                         "x\n\tif a {\n\t\treturn c\n\t}\n",
		"x\n\tif a {\n\t\treturn bc\n\t}\n":                        "",
		"x\n\tif a {\n\t\treturn b\n\t}\n\tif a {\n\t\treturn b\n": "",
	} {
		if got, err := all[0].apply(content); got != want || (err == nil) != (want != "") {
			t.Errorf("%q with the mutant: %q, %v, want %q", content, got, err, want)
		}
	}
}
