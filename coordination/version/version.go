// SPDX-License-Identifier: Apache-2.0

// Package version holds the version of Tandem for programs, images, chart and packages. The file VERSION
// contains the version: "0.2.0" in the commit of a release, "0.2.0-dev" in earlier commits.
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

// Text returns the version of this program; see [Of].
var Text = sync.OnceValue(func() string {
	info, _ := debug.ReadBuildInfo()
	return Of(info)
})

// Of returns the semantic version of a program from its build information:
//
//   - "0.2.0" for a commit with the tag v0.2.0
//   - "0.2.0-dev+0123456789ab" for another commit, as recorded by the go command
//   - "0.2.0+modified" or "0.2.0-dev+0123456789ab.modified" if files differ from the commit
//   - the content of VERSION without a recorded commit; info may be nil
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

// Source returns the commit of a program and the time of the commit, as recorded by the go command; "" and
// the zero time without a record.
func Source(info *debug.BuildInfo) (commit string, made time.Time) {
	made, _ = time.Parse(time.RFC3339, setting(info, "vcs.time")) // the zero time on error
	return setting(info, "vcs.revision"), made
}

// setting returns a build setting, or "" if the go command recorded none.
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
