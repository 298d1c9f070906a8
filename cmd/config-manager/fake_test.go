// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
)

// newOptions returns the options for variables.
func newOptions(t *testing.T, variables map[string]string) options {
	t.Helper()
	var o options
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.registerFlags(set)
	check(t, fromEnvironment(set, func(name string) (string, bool) { v, ok := variables[name]; return v, ok }))
	check(t, o.checkFlags())
	return o
}

// processes is a /proc with these command lines.
func processes(t *testing.T, lines map[int]string) string {
	t.Helper()
	dir := t.TempDir()
	check(t, os.MkdirAll(filepath.Join(dir, "sys"), 0o750))
	check(t, os.MkdirAll(filepath.Join(dir, "99"), 0o750)) // of an ended process
	for pid, line := range lines {
		check(t, os.MkdirAll(filepath.Join(dir, fmt.Sprint(pid)), 0o750))
		check(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(pid), "cmdline"), []byte(line), 0o600))
	}
	return dir
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
