// SPDX-License-Identifier: Apache-2.0

// Package version holds the version of Tandem, once for programs, image, chart and packages. The file VERSION
// says it: "0.1.0" in the commit that is released, "0.2.0-dev" in those before.
package version

import (
	_ "embed"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

//go:embed VERSION
var file string

// Text is the version of this program by Semantic Versioning, as Of tells it.
var Text = sync.OnceValue(func() string {
	info, _ := debug.ReadBuildInfo()
	return Of(info)
})

// Of is the version of a program that was built from this source: "0.1.0" from a commit that has the tag
// v0.1.0, otherwise with the commit that the Go command recorded, "0.2.0-dev+0123456789ab", and with
// ".modified" behind it where files were not as in that commit. Without a record, which nil stands for as
// well, it is what VERSION says.
func Of(info *debug.BuildInfo) string {
	own := strings.TrimSpace(file)
	var build []string
	if commit, _ := Source(info); commit != "" && strings.TrimSuffix(info.Main.Version, "+dirty") != "v"+own {
		build = append(build, commit[:min(len(commit), 12)])
	}
	if setting(info, "vcs.modified") == "true" {
		build = append(build, "modified")
	}
	if len(build) == 0 {
		return own
	}
	return own + "+" + strings.Join(build, ".")
}

// Source is the commit that a program was built from, as the Go command recorded it, and when that was made;
// "" and the zero time without a record.
func Source(info *debug.BuildInfo) (commit string, made time.Time) {
	made, _ = time.Parse(time.RFC3339, setting(info, "vcs.time")) // zero where there is none
	return setting(info, "vcs.revision"), made
}

// Tag is a version as the tag of an image, in which no plus can be: Helm writes it so too.
func Tag(version string) string { return strings.ReplaceAll(version, "+", "_") }

// setting is what the Go command recorded under a key, "" for nothing.
func setting(info *debug.BuildInfo, key string) string {
	if info == nil {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}
