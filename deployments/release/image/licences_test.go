// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/buildinfo"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// TestLicences: an image has the licences of everything in it: Tandem's own, each Go module's, busybox's and
// glibc's, and says where the sources are.
func TestLicences(t *testing.T) {
	bin := programs(t)
	root := filepath.Join(t.TempDir(), "root")
	ready(t, writeRoot(root, bin, standIn(bin)))
	read := func(name string) string {
		content, err := os.ReadFile(filepath.Join(root, licenceFolder, name))
		ready(t, err)
		return string(content)
	}
	for name, want := range map[string]string{
		"tandem/Apache-2.0.txt": "Apache License", "busybox/GPL-2.0.txt": "Version 2, June 1991",
		"glibc/LGPL-2.1.txt": "Version 2.1, February 1999", "README.txt": "sources.tar",
	} {
		if !strings.Contains(read(name), want) {
			t.Errorf("%s has no %q", name, want)
		}
	}
	own, err := os.ReadFile(top + "/LICENSE")
	ready(t, err)
	if read("tandem/Apache-2.0.txt") != string(own) {
		t.Error("the licence in licences is not that of the repository")
	}
	modules := read("modules.txt")
	if size := len(modules); size > 1<<20 {
		t.Errorf("modules.txt has %d bytes", size)
	}
	for _, program := range paths(programFiles(bin)) {
		info, err := buildinfo.ReadFile(program)
		ready(t, err)
		for _, m := range info.Deps {
			if !strings.Contains(modules, "== "+m.Path+" "+m.Version+"\n") {
				t.Errorf("no licence of %s %s", m.Path, m.Version)
			}
		}
	}
}

// TestLicencesOfOtherModules: tandem-scheduler, a module of its own, replaces Tandem's module by a folder of
// the repository, as this test does. The folder is not in the module cache.
func TestLicencesOfOtherModules(t *testing.T) {
	program, err := os.Executable()
	ready(t, err)
	info, err := buildinfo.ReadFile(program)
	ready(t, err)
	if !slices.ContainsFunc(info.Deps, func(m *debug.Module) bool {
		return m.Replace != nil && m.Replace.Path == "../.."
	}) {
		t.Fatalf("this test replaces no module: %v", info.Deps)
	}
	modules, err := moduleLicences([]string{program})
	if err != nil || strings.Contains(modules, "== ..") || !strings.Contains(modules, "== github.com/") {
		t.Errorf("%v: %.200s", err, modules)
	}
}

// TestLicenceOf: a module without a licence is an error, not an empty text.
func TestLicenceOf(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"license.go": "package x", "README": "x"} {
		ready(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	if text, err := licenceOf(filepath.Join(dir, "absent")); err == nil {
		t.Errorf("of an absent module %q", text)
	}
	if text, err := licenceOf(dir); err == nil {
		t.Errorf("of a module without one %q", text)
	}
	ready(t, os.WriteFile(filepath.Join(dir, "COPYING.md"), []byte("\nfree\n\n"), 0o600))
	ready(t, os.WriteFile(filepath.Join(dir, "NOTICE"), []byte("mine\n"), 0o600))
	if text, err := licenceOf(dir); text != "free\n\nmine\n" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}
