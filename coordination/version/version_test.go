// SPDX-License-Identifier: Apache-2.0

package version

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
)

func built(tag, commit, modified string) *debug.BuildInfo {
	return &debug.BuildInfo{Main: debug.Module{Version: tag}, Settings: []debug.BuildSetting{
		{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: commit}, {Key: "vcs.modified", Value: modified},
	}}
}

func TestOf(t *testing.T) {
	defer func(kept string) { file = kept }(file)
	const commit = "0123456789abcdef0123456789abcdef01234567"
	for _, c := range []struct {
		file string
		info *debug.BuildInfo
		want string
	}{
		{"0.1.0\n", built("v0.1.0", commit, "false"), "0.1.0"},
		{"0.1.0\n", built("v0.1.0+dirty", commit, "true"), "0.1.0+modified"},
		{"0.1.0\n", built("v0.1.1-0.20261123110000-0123456789ab", commit, "false"), "0.1.0+0123456789ab"},
		{"0.1.0\n", &debug.BuildInfo{}, "0.1.0"}, // a tarball
		{"0.2.0-dev\n", built("v0.1.0", commit, "false"), "0.2.0-dev+0123456789ab"},
		{"0.2.0-dev\n", built("v0.1.1-0.2026+dirty", commit, "true"), "0.2.0-dev+0123456789ab.modified"},
		{"0.2.0-dev\n", &debug.BuildInfo{}, "0.2.0-dev"},
		{"0.2.0-dev\n", nil, "0.2.0-dev"},
	} {
		file = c.file
		if got := Of(c.info); got != c.want {
			t.Errorf("%q with %v is %s, want %s", c.file, c.info, got, c.want)
		}
	}
}

func TestSource(t *testing.T) {
	info := built("", "0123", "false")
	info.Settings = append(info.Settings, debug.BuildSetting{Key: "vcs.time", Value: "2026-11-23T11:00:00Z"})
	if commit, made := Source(info); commit != "0123" || made.Unix() != 1795431600 {
		t.Errorf("%s, %s", commit, made)
	}
	if commit, made := Source(nil); commit != "" || !made.IsZero() {
		t.Errorf("without a record %s, %s", commit, made)
	}
}

// TestOneVersion: what has to be changed together for a release is.
func TestOneVersion(t *testing.T) {
	want := strings.TrimSpace(file)
	if !regexp.MustCompile(`^0\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-dev)?$`).MatchString(want) {
		t.Fatalf("VERSION says %q, want 0.x.y or 0.x.y-dev", want)
	}
	files := map[string]string{
		"Dockerfile": `image\.version="([^"\n]*)"`,
		"deployments/helm/tandem/Chart.yaml": `(?m)^(?:version|appVersion| +image): ` +
			`(?:ghcr\.io/[\w/-]+:)?"?([^"\n]+)"?$`,
		"deployments/base/kustomization.yaml":      `(?m)^ +newTag: "?([^"\n]+)"?$`,
		"deployments/dra/kustomization.yaml":       `(?m)^ +newTag: "?([^"\n]+)"?$`,
		"deployments/scheduler/kustomization.yaml": `(?m)^ +newTag: "?([^"\n]+)"?$`,
	}
	for _, name := range manifests(t) {
		files[name] = `(?m)^ +image: ghcr\.io/tandem-k8s/tandem(?:-scheduler)?:(\S+)`
	}
	for name, pattern := range files {
		content, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(pattern).FindAllStringSubmatch(string(content), -1)
		if len(found) == 0 {
			t.Errorf("%s names no version", name)
		}
		for _, f := range found {
			if f[1] != want {
				t.Errorf("%s says %s, coordination/version/VERSION %s: write the same into both", name, f[1], want)
			}
		}
	}
	changes, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	entry := "## [" + want + "] - "
	if strings.HasSuffix(want, "-dev") {
		entry = "## [Unreleased]"
	}
	if !strings.Contains(string(changes), "\n"+entry) {
		t.Errorf("CHANGELOG.md has no entry %q", entry)
	}
}

// manifests returns the manifests with the released image: those of daemons and of examples.
func manifests(t *testing.T) (names []string) {
	t.Helper()
	for _, pattern := range []string{"*/daemonset*.yaml", "*/deployment.yaml", "*/job.yaml", "examples/*.yaml"} {
		found, err := filepath.Glob("../../deployments/" + pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("manifests %s: %v", pattern, err)
		}
		for _, name := range found {
			names = append(names, strings.TrimPrefix(name, "../../"))
		}
	}
	return names
}
