package chart_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocsNameValues renders the chart with every value that the migration guide sets.
func TestDocsNameValues(t *testing.T) {
	guide, err := os.ReadFile("../../deployments/MIGRATE.md")
	if err != nil {
		t.Fatal(err)
	}
	settings := regexp.MustCompile(`--set(?:-json)? '?([\w.]+)=([^\s'`+"`"+`]+)`).FindAllStringSubmatch(string(guide), -1)
	if len(settings) < 15 {
		t.Errorf("the guide sets %d values", len(settings))
	}
	for _, s := range settings {
		values := s[2]
		if regexp.MustCompile(`^[A-Z]+$`).MatchString(values) {
			values = "name" // what the reader fills in
		}
		keys := strings.Split(s[1], ".")
		for i := len(keys) - 1; i >= 0; i-- {
			values = "{" + keys[i] + ": " + values + "}"
		}
		if _, err := render(t, values); err != nil {
			t.Errorf("MIGRATE.md sets %s=%s: %v", s[1], s[2], err)
		}
	}
}

// TestNotes: what the chart tells after the installation is there.
func TestNotes(t *testing.T) {
	for _, vendor := range []string{"auto", "amd", "nvidia"} {
		notes := renderFile(t, "gpu: {vendor: "+vendor+"}", "NOTES.txt")
		files := regexp.MustCompile(`deployments/\S+\.(yaml|md)`).FindAllString(notes, -1)
		if len(files) != 2 {
			t.Errorf("the notes name the files %q:\n%s", files, notes)
		}
		for _, file := range files {
			if _, err := os.Stat(filepath.Join("../..", file)); err != nil {
				t.Errorf("the notes name a file that is not there: %v", err)
			}
		}
	}
}
