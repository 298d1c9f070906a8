// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/ast"
	"go/token"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// base are the programs that tests run and that every Linux distribution has: those of coreutils, libc-bin,
// tar and util-linux, which Debian calls essential, and a shell.
var base = []string{"chroot", "cp", "ldconfig", "ldd", "mknod", "nsenter", "sh", "tar", "unshare"}

// TestNeeds: README, CONTRIBUTING and .ci/run name the same programs, the Go version is that of go.mod, and
// tests run nothing else without having asked whether it is there (exec.LookPath).
func TestNeeds(t *testing.T) {
	t.Parallel()
	needed := words(match(t, "README.md", `Linux machine with (Go [^.]*\.\d+, [^.]*)\.`))
	contributing := words(match(t, "CONTRIBUTING.md", `(?s)^# Contributing\n\n(.*?) are all it takes`))
	installed := exec.Command("sh", "-c", match(t, ".ci/run", `(?s)\nneeded\(\) \{\n(.*?)\n\}`))
	installed.Dir = root
	list, err := installed.Output()
	if err != nil {
		t.Fatal(err)
	}
	ci := append(strings.Fields(string(list)), "Go "+match(t, "go.mod", `\ngo (\d+\.\d+)`))
	slices.Sort(ci)
	for where, names := range map[string][]string{"CONTRIBUTING.md": contributing, ".ci/run with go.mod": ci} {
		if diff := cmp.Diff(needed, names); diff != "" {
			t.Errorf("%s needs other programs than README (-README +%s):\n%s", where, where, diff)
		}
	}
	needed = append(needed, "go", "/proc/self/exe") // the latter is the test itself
	for program, where := range run(t) {
		if !slices.Contains(needed, program) && !slices.Contains(base, program) {
			t.Errorf("%s runs %s, which README does not name", where, program)
		}
	}
}

// match is what the group of a pattern matches in a file.
func match(t *testing.T, file, pattern string) string {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(read(t, file))
	if found == nil {
		t.Fatalf("%s has nothing like %s", file, pattern)
	}
	return found[1]
}

var remark = regexp.MustCompile(`\s*\([^)]*\)`)

// words are those of an enumeration, sorted, without remarks in brackets.
func words(enumeration string) []string {
	list := strings.Split(strings.ReplaceAll(remark.ReplaceAllString(enumeration, ""), " and ", ", "), ", ")
	slices.Sort(list)
	return list
}

// run finds the programs that tests run by name, and where. The machine of "make e2e" has its own.
func run(t *testing.T) map[string]string {
	t.Helper()
	programs, files := map[string]string{}, token.NewFileSet()
	for _, name := range repositoryFiles(t) {
		if !strings.HasSuffix(name, "_test.go") && !(isGo(name) && strings.HasPrefix(name, "test/")) ||
			strings.HasPrefix(name, "test/vm/") {
			continue
		}
		for node := range ast.Preorder(parsed(t, files, name)) {
			if program, ok := commanded(node); ok {
				programs[program] = files.Position(node.Pos()).String()
			}
		}
	}
	if programs["go"] == "" || programs["sh"] == "" {
		t.Errorf("found only %v", programs)
	}
	return programs
}

// commanded is the program that a call of exec.Command or exec.CommandContext names.
func commanded(node ast.Node) (program string, ok bool) {
	call, isCall := node.(*ast.CallExpr)
	if !isCall {
		return "", false
	}
	function, isSelector := call.Fun.(*ast.SelectorExpr)
	if !isSelector {
		return "", false
	}
	of, isName := function.X.(*ast.Ident)
	if !isName || of.Name != "exec" {
		return "", false
	}
	at := map[string]int{"Command": 0, "CommandContext": 1}
	i, known := at[function.Sel.Name]
	if !known || len(call.Args) <= i {
		return "", false
	}
	literal, isLiteral := call.Args[i].(*ast.BasicLit)
	if !isLiteral {
		return "", false
	}
	program, err := strconv.Unquote(literal.Value)
	return program, err == nil
}
