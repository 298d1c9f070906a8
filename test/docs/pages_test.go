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
	"unicode"
)

// TestSizes: README, CONTRIBUTING and its first page are short. The census limits all documents.
func TestSizes(t *testing.T) {
	t.Parallel()
	contributing := read(t, "CONTRIBUTING.md")
	first, _, _ := strings.Cut(contributing, "\n## Layout\n")
	for _, page := range []struct {
		name, text string
		most       int // words
	}{
		{"README.md", read(t, "README.md"), 700},
		{"CONTRIBUTING.md", contributing, 2500},
		{"CONTRIBUTING.md up to Layout", first, 500},
	} {
		if words := len(strings.Fields(page.text)); words > page.most {
			t.Errorf("%s has %d words, want %d at most", page.name, words, page.most)
		}
	}
}

// TestREADME: README leads to every page.
func TestREADME(t *testing.T) {
	t.Parallel()
	text := read(t, "README.md")
	for _, file := range files(t) {
		if file != "README.md" && !strings.Contains(text, "]("+file+")") {
			t.Errorf("README.md does not lead to %s", file)
		}
	}
}

// others are documents with links that contain no commands for users.
var others = []string{
	"CODE_OF_CONDUCT.md", "GOVERNANCE.md", "MAINTAINERS.md", "ROADMAP.md", "SECURITY.md",
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// TestLinks: what a link within the repository names is there, the heading too.
func TestLinks(t *testing.T) {
	t.Parallel()
	count := 0
	for _, file := range append(files(t), others...) {
		for _, found := range link.FindAllStringSubmatch(prose(read(t, file)), -1) {
			target, anchor, hasAnchor := strings.Cut(found[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			count++
			to := path.Join(path.Dir(file), target)
			if target == "" {
				to = file
			}
			if _, err := os.Stat(filepath.Join(root, to)); err != nil {
				t.Errorf("%s links to %s, which is not there", file, found[1])
				continue
			}
			if hasAnchor && !slices.Contains(anchors(read(t, to)), anchor) {
				t.Errorf("%s links to %s: no such heading; there are %q", file, found[1], anchors(read(t, to)))
			}
		}
	}
	if count < 30 {
		t.Errorf("found only %d links", count)
	}
}

func TestAnchors(t *testing.T) {
	t.Parallel()
	const text = "# A `b`, c?\n```sh\n# no heading\n```\n## 1. Un mot-clé_x\n## A b c\n"
	want := []string{"a-b-c", "1-un-mot-clé_x", "a-b-c-1"}
	if got := anchors(text); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// anchors are the names by which the headings of a page can be linked to, as GitHub makes them.
func anchors(text string) (all []string) {
	seen := map[string]int{}
	for line := range strings.Lines(prose(text)) {
		title := strings.TrimLeft(line, "#")
		if title == line || !strings.HasPrefix(title, " ") {
			continue
		}
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			default:
				return -1
			}
		}, strings.TrimSpace(title))
		if seen[anchor]++; seen[anchor] > 1 {
			anchor += "-" + string(rune('0'+seen[anchor]-1))
		}
		all = append(all, anchor)
	}
	return all
}

// prose is a document without its blocks of code.
func prose(text string) string {
	var kept strings.Builder
	fenced := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		} else if !fenced {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

func files(t *testing.T) []string {
	t.Helper()
	files, err := Files(root)
	if err != nil || len(files) < 10 {
		t.Fatalf("the documents are %q: %v", files, err)
	}
	return files
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
