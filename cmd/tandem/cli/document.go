// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tandem-k8s/tandem/coordination/version"
)

// V1 is version 1 of a document: later releases may add keys, but neither remove keys nor change their
// meaning. The zero value is ready to use.
type V1 struct{}

// MarshalJSON writes the number.
func (V1) MarshalJSON() ([]byte, error) { return []byte("1"), nil }

// UnmarshalJSON returns an error for other versions.
func (*V1) UnmarshalJSON(text []byte) error {
	if version := strings.TrimSpace(string(text)); version != "1" {
		return fmt.Errorf("read version %s of the document: this program knows version 1", version)
	}
	return nil
}

// Count returns "1 VF" or "3 VFs"; of "file or folder" the plural is "files or folders".
func Count[N int | uint](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, strings.Replace(noun, " or ", "s or ", 1))
}

// CountAre returns "1 VF is" or "3 VFs are".
func CountAre(n int, noun string) string {
	if n == 1 {
		return Count(n, noun) + " is"
	}
	return Count(n, noun) + " are"
}

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
