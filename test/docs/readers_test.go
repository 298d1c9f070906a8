// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"testing"
)

// readers are the names of functions that read a state that another program writes, or an earlier reading of
// it. What their error says is not what an empty state says.
var readers = regexp.MustCompile(
	`^([rR]ead([A-Z]\w*)?|FindProcess|Get|Granted|Pods|Prepared|Recorded|Reserved)$`)

// ofFiles are the names of functions of packages fs and os that say whether a file is there, and what it has.
var ofFiles = regexp.MustCompile(`^(L?[sS]tat|Readlink)$`)

// TestReaders: no code of the product drops the error of a reader.
func TestReaders(t *testing.T) {
	t.Parallel()
	files := token.NewFileSet()
	for _, name := range goFiles(t, "cmd", "coordination", "deployments", "plugins", "topology") {
		for _, at := range droppedErrors(parsed(t, files, name)) {
			t.Errorf("%s drops the error of a reader: unknown is not empty", files.Position(at))
		}
	}
}

// droppedErrors finds calls of readers whose last result is dropped.
func droppedErrors(file *ast.File) (found []token.Pos) {
	ast.Inspect(file, func(n ast.Node) bool {
		assigned, is := n.(*ast.AssignStmt)
		if !is || len(assigned.Rhs) != 1 {
			return true
		}
		last, is := assigned.Lhs[len(assigned.Lhs)-1].(*ast.Ident)
		call, isCall := assigned.Rhs[0].(*ast.CallExpr)
		if is && isCall && last.Name == "_" && isReader(call.Fun) {
			found = append(found, call.Pos())
		}
		return true
	})
	return found
}

func isReader(function ast.Expr) bool {
	switch f := function.(type) {
	case *ast.IndexExpr: // of a type
		return isReader(f.X)
	case *ast.SelectorExpr:
		of, is := f.X.(*ast.Ident)
		if is && (of.Name == "fs" || of.Name == "os") && ofFiles.MatchString(f.Sel.Name) {
			return true
		}
		return readers.MatchString(f.Sel.Name) && !(is && of.Name == "debug")
	case *ast.Ident:
		return readers.MatchString(f.Name)
	default:
		return false
	}
}

// TestDroppedErrors: which forms drop the error of a reader.
func TestDroppedErrors(t *testing.T) {
	t.Parallel()
	for statement, dropped := range map[string]bool{
		"c, _ := kubelet.ReadCheckpoint(dir)":         true,
		"c, _ = readState(dir)":                       true,
		"_, _ = held.Read(dir)":                       true,
		"s, _ := store.Read[saved](dir)":              true,
		"_ = r.Recorded()":                            true,
		"k, _ := n.Kubelet.Read(p)":                   true,
		"v, _ := o.manager.Get()":                     true,
		"c, err := kubelet.ReadCheckpoint(dir)":       false,
		"_, err := held.Read(dir)":                    false,
		`content, _ := fs.ReadFile(sys, "numa_node")`: true,
		`id, _ := os.ReadFile("boot_id")`:             true,
		`nodes, _ := fs.ReadDir(sys, "node")`:         true,
		`info, _ := os.Stat("dev")`:                   true,
		`_, _ = fs.Lstat(sys, "dev")`:                 true,
		`_, err := fs.Stat(sys, "dev")`:               false,
		"b, _ := debug.ReadBuildInfo()":               false,
		`v, _ := m["a"]`:                              false,
		"d, _ := tree.Device(a)":                      false,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", "package p; func f() { "+statement+" }", 0)
		if err != nil {
			t.Fatal(err)
		}
		if found := droppedErrors(file); len(found) > 0 != dropped {
			t.Errorf("%s: found at %v", statement, found)
		}
	}
}
