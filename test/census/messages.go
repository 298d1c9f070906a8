// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The kinds of messages.
const (
	errorText = "error" // of an error that names a file, key or device
	logEvent  = "log"   // of the daemons
)

// messagesOf returns the messages of a file: texts that people and their programs rely on, with their kinds.
func messagesOf(file *ast.File) (all []string) {
	ast.Inspect(file, func(node ast.Node) bool {
		if call, ok := node.(*ast.CallExpr); ok {
			if kind, text := calledWith(call); kind != "" {
				all = append(all, fmt.Sprintf("%s %q", kind, text))
			}
		}
		return true
	})
	return all
}

// naming matches the text of an error that names something: by a verb for anything but an error, as a flag,
// or as a file or key.
var naming = regexp.MustCompile(`%[^w%]|\B--?[a-z]|\w[./]\w`)

// logging matches the names of a logger's methods.
var logging = regexp.MustCompile(`^(Debug|Info|Warn|Error|Log)(Context)?$`)

// calledWith returns the first text that a call makes an error of, or logs.
func calledWith(call *ast.CallExpr) (kind, text string) {
	function, ok := call.Fun.(*ast.SelectorExpr)
	at := slices.IndexFunc(call.Args, func(e ast.Expr) bool { return textOf(e) != "" })
	if !ok || at < 0 {
		return "", ""
	}
	text = textOf(call.Args[at])
	isKey := at > 0 && (len(call.Args)-at)%2 == 0 && call.Ellipsis == token.NoPos // of the value that follows
	switch name, of := function.Sel.Name, types.ExprString(function.X); {
	case (name == "Errorf" || name == "New" && of == "errors") && naming.MatchString(text):
		return errorText, text
	case logging.MatchString(name) && of != "http" && !isKey:
		return logEvent, text
	default:
		return "", ""
	}
}

// textOf returns the text of a literal or of a sum with literals, whose other parts are dots.
func textOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, _ := strconv.Unquote(e.Value) // which the parser has checked
			return text
		}
	case *ast.BinaryExpr:
		left, right := textOf(e.X), textOf(e.Y)
		switch {
		case e.Op != token.ADD || left == "" && right == "":
			return ""
		case left == "":
			left = "…"
		case right == "":
			right = "…"
		}
		return left + right
	}
	return ""
}

// listMessages lists the messages of files by package.
func listMessages(sources []*source) (list string) {
	packages := byFolder(sources)
	for _, folder := range slices.Sorted(maps.Keys(packages)) {
		var lines []string
		for _, s := range packages[folder] {
			for _, m := range messagesOf(s.syntax) {
				lines = append(lines, indent+m+"\n")
			}
		}
		if len(lines) > 0 {
			slices.Sort(lines)
			list += folder + "\n" + strings.Join(slices.Compact(lines), "")
		}
	}
	return list
}

// indent is before a message below its package.
const indent = "  "

// dropped returns the messages of a list that no file has, whatever package had them, with their packages.
func dropped(list string, sources []*source) (all []string) {
	present := map[string]bool{}
	for _, s := range sources {
		for _, m := range messagesOf(s.syntax) {
			present[m] = true
		}
	}
	folder := ""
	for line := range strings.Lines(list) {
		line = strings.TrimSuffix(line, "\n")
		m, isMessage := strings.CutPrefix(line, indent)
		switch {
		case !isMessage:
			folder = line
		case !present[m]:
			all = append(all, folder+": "+m)
		}
	}
	return all
}
