// SPDX-License-Identifier: Apache-2.0

package document

import (
	"bytes"
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"text/tabwriter"
	"time"

	"github.com/tandem-k8s/tandem/coordination/version"
)

// Build describes a program, as printed by tandem version.
type Build struct {
	Version  V1     `json:"version"`
	Program  string `json:"program"`          // "tandem" or "kubectl-tandem"
	Release  string `json:"release"`          // semantic version
	Commit   string `json:"commit,omitempty"` // of the source; absent if the build recorded none
	Date     string `json:"date,omitempty"`   // of the commit, by RFC 3339
	Go       string `json:"go"`               // version of Go
	Platform string `json:"platform"`         // as in "linux/amd64"
}

// NewBuild returns the build of a program with a name.
func NewBuild(program string, info *debug.BuildInfo) Build {
	b := Build{
		Program: program, Release: version.Of(info), Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	commit, made := version.Source(info)
	b.Commit = commit
	if !made.IsZero() {
		b.Date = made.UTC().Format(time.RFC3339)
	}
	return b
}

// Table returns the build for people. The first line is that of --version.
func (b Build) Table() []byte {
	var out bytes.Buffer
	fmt.Fprintln(&out, b.Program, b.Release)
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "commit\t%s\n", cmp.Or(b.Commit, "unknown"))
	fmt.Fprintf(w, "date\t%s\n", cmp.Or(b.Date, "unknown"))
	fmt.Fprintf(w, "go\t%s\n", b.Go)
	fmt.Fprintf(w, "platform\t%s\n", b.Platform)
	w.Flush() // into memory
	return out.Bytes()
}
