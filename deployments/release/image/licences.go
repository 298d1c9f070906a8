// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/buildinfo"
	"embed"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
)

// licenceFolder contains the licences of all software in an image.
const licenceFolder = "usr/share/licenses/"

//go:embed licences
var licenceTexts embed.FS

// licenceFile returns a licence of the directory licences as a file of the image.
func licenceFile(owner, name string) (file, error) {
	text, err := licenceTexts.ReadFile("licences/" + name)
	return file{name: licenceFolder + path.Join(owner, name), text: string(text)}, err
}

// baseLicences returns the licences of the third-party programs, and a text that names each program's source.
func baseLicences() (files []file, err error) {
	for _, licence := range []struct{ owner, name string }{
		{"", "README.txt"}, {"busybox", "GPL-2.0.txt"}, {"glibc", "LGPL-2.1.txt"},
	} {
		f, err := licenceFile(licence.owner, licence.name)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// programLicences returns Tandem's licence, and one file with the licences of all Go modules in the programs.
func programLicences(programs ...string) ([]file, error) {
	own, err := licenceFile("tandem", "Apache-2.0.txt")
	if err != nil {
		return nil, err
	}
	text, err := moduleLicences(programs)
	return []file{own, {name: licenceFolder + "modules.txt", text: text}}, err
}

// moduleLicences returns the licences of the Go modules in programs. Modules with equal texts share one text.
// The modules must be in the module cache, where the build of the programs puts them.
func moduleLicences(programs []string) (string, error) {
	folders, err := moduleFolders(programs)
	if err != nil {
		return "", err
	}
	owners := map[string][]string{} // by text
	for _, module := range slices.Sorted(maps.Keys(folders)) {
		text, err := licenceOf(folders[module])
		if err != nil {
			return "", fmt.Errorf("read the licence of %s: %w", module, err)
		}
		owners[text] = append(owners[text], module)
	}
	var all strings.Builder
	for _, text := range slices.SortedFunc(maps.Keys(owners), func(a, b string) int {
		return strings.Compare(owners[a][0], owners[b][0])
	}) {
		fmt.Fprintf(&all, "== %s\n\n%s\n", strings.Join(owners[text], "\n== "), text)
	}
	return all.String(), nil
}

var upper = regexp.MustCompile(`[A-Z]`)

// moduleFolders returns the folder of each module in programs in the module cache, and that of the standard
// library.
func moduleFolders(programs []string) (map[string]string, error) {
	out, err := exec.Command("go", "env", "GOMODCACHE", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("run go env: %w", err)
	}
	cache, root, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	folders := map[string]string{}
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return nil, fmt.Errorf("read the modules of %s: %w; run make build", program, err)
		}
		folders["Go "+info.GoVersion] = root
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			if strings.HasPrefix(m.Path, ".") { // a folder of this repository: Tandem's licence is in the image
				continue
			}
			folders[m.Path+" "+m.Version] = filepath.Join(cache, cached(m))
		}
	}
	return folders, nil
}

// cached returns the folder of a module in the module cache: "!a" stands for "A" (go help goproxy).
func cached(m *debug.Module) string {
	return upper.ReplaceAllStringFunc(m.Path+"@"+m.Version, func(letter string) string {
		return "!" + strings.ToLower(letter)
	})
}

var licenceName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice)([.-].*)?$`)

// licenceOf returns the licence and notice files in a module's folder.
func licenceOf(folder string) (string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return "", err
	}
	var texts []string
	for _, entry := range entries {
		name := entry.Name()
		if !licenceName.MatchString(name) || path.Ext(name) == ".go" || !entry.Type().IsRegular() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return "", err
		}
		texts = append(texts, strings.TrimSpace(string(text))+"\n")
	}
	if len(texts) == 0 {
		return "", fmt.Errorf("%s has no file LICENSE, COPYING or NOTICE", folder)
	}
	return strings.Join(texts, "\n"), nil
}
