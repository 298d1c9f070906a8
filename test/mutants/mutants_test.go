// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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
		if err := findTest(m); err != nil {
			t.Errorf("mutant %s: %v", m.name, err)
		}
	}
}

// testNames matches the names of a file's tests.
var testNames = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// findTest returns an error if a mutant runs no test of its folder.
func findTest(m mutant) error {
	pattern := "."
	if i := slices.Index(m.arguments, "-run"); i >= 0 && i+1 < len(m.arguments) {
		pattern, _, _ = strings.Cut(m.arguments[i+1], "/")
	}
	run, err := regexp.Compile(pattern)
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join("../..", m.folder, "*_test.go"))
	if err != nil {
		return err
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, name := range testNames.FindAllSubmatch(content, -1) {
			if run.Match(name[1]) {
				return nil
			}
		}
	}
	return fmt.Errorf("no test in %s matches %s", m.folder, pattern)
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

// TestTestsThatDoNotRunKillNothing: a mutant counts as killed only after a result of its tests.
func TestTestsThatDoNotRunKillNothing(t *testing.T) {
	failed := &exec.ExitError{}
	for output, c := range map[string]struct {
		err  error
		want bool
	}{
		"ok\texample.com/x\t0.01s\n":                     {nil, true},
		"--- FAIL: TestX (0.00s)\nFAIL\tx\t0.01s\n":      {failed, true},
		"panic: test timed out after 10m0s\n":            {failed, true},
		"ok\tx\t0.01s [no tests to run]\n":               {nil, false},
		"FAIL\tx [build failed]\n":                       {failed, false},
		"FAIL\tx [setup failed]\n":                       {failed, false},
		"testing: invalid regexp for element 0\nFAIL\tx": {failed, false},
		"": {errors.New("chdir: no such file or directory"), false},
	} {
		if got := haveRun(output, c.err); got != c.want {
			t.Errorf("%q, %v: %t, want %t", output, c.err, got, c.want)
		}
	}
}
