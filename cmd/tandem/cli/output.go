// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tandem-k8s/tandem/cmd/internal/plainflag"
	"github.com/tandem-k8s/tandem/coordination/spelling"
	"github.com/tandem-k8s/tandem/coordination/version"
)

// Output formats of all commands: for people, for programs.
const (
	AsTable = "table"
	AsJSON  = "json"
)

// Output is the flag -o of a command. The first of its formats is the default.
type Output struct {
	Format  string
	formats []string
}

// OneOf returns the flag with these formats.
func OneOf(formats ...string) Output { return Output{Format: formats[0], formats: formats} }

// String implements pflag.Value.
func (o *Output) String() string { return o.Format }

// Set implements pflag.Value.
func (o *Output) Set(s string) error {
	if !slices.Contains(o.formats, s) {
		return fmt.Errorf("want %s", spelling.List(o.formats))
	}
	o.Format = s
	return nil
}

// Type implements pflag.Value.
func (o *Output) Type() string { return "FORMAT" }

// Register adds the flag -o.
func (o *Output) Register(cmd *cobra.Command) {
	cmd.Flags().VarP(o, "output", "o", spelling.List(o.formats))
	plainflag.Words(cmd.Flags(), "output", o.formats...)
	CompleteFlag(cmd, "output", FixedValues(o.formats...))
}

// Write writes an answer as JSON, or a text for people.
func (o *Output) Write(cmd *cobra.Command, answer any, table func() *Text) error {
	text, err := o.Text(answer, table)
	if err != nil {
		return err
	}
	return o.Show(cmd, text)
}

// Text returns an answer as JSON, or a text for people.
func (o *Output) Text(answer any, table func() *Text) (*Text, error) {
	if o.Format != AsJSON {
		return table(), nil
	}
	var text Text
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(answer)
	return &text, err
}

// Show writes a text; a text for people is made for the terminal.
func (o *Output) Show(cmd *cobra.Command, text *Text) error {
	screen := screen{out: cmd.OutOrStdout()}
	if o.Format != AsJSON {
		screen = newScreen(cmd.OutOrStdout(), ColourMode(cmd), os.Getenv)
	}
	return screen.show(text)
}

// screen is the output of a command for people.
type screen struct {
	out    io.Writer
	width  int  // of the terminal in columns; 0 for lines of any length
	colour bool // colours, if out is a [PrintableWriter], through which only this program controls a terminal
}

// newScreen returns the screen that out writes to, with colours by the mode and the environment.
func newScreen(out io.Writer, mode string, env func(string) string) screen {
	s := screen{out: out}
	isTerminal := false
	if writer, ok := out.(*PrintableWriter); ok {
		if file, ok := writer.Terminal(); ok {
			isTerminal = true
			s.width, _, _ = term.GetSize(int(file.Fd())) // 0 if unknown
		}
	}
	s.colour = hasColours(mode, isTerminal, env)
	return s
}

// show writes a text.
func (s screen) show(text *Text) error {
	lines := text.layOut(s.width)
	out, ok := s.out.(*PrintableWriter)
	if !ok || !s.colour {
		_, err := io.WriteString(s.out, joinLines(lines))
		return err
	}
	var shown strings.Builder
	for _, line := range lines {
		for _, part := range line {
			text := part.Text
			if colour, coloured := colours[part.Verdict]; coloured {
				text = colour + text + plain
			}
			shown.WriteString(text)
		}
		shown.WriteString("\n")
	}
	_, err := io.WriteString(out.to, shown.String())
	return err
}

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

// newBuild returns the build of a program with a name.
func newBuild(program string, info *debug.BuildInfo) Build {
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
func (b Build) Table() *Text {
	var out Text
	out.Line(b.Program, " ", b.Release)
	out.Row("commit", cmp.Or(b.Commit, "unknown"))
	out.Row("date", cmp.Or(b.Date, "unknown"))
	out.Row("go", b.Go)
	out.Row("platform", b.Platform)
	return &out
}

// NewVersionCommand returns a command with more than --version: the source, Go and the platform.
func NewVersionCommand() *cobra.Command {
	format := OneOf(AsTable, AsJSON)
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, commit, Go version and platform",
		Args:  NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			info, _ := debug.ReadBuildInfo()
			build := newBuild(cmd.Root().Name(), info)
			return format.Write(cmd, build, build.Table)
		},
	}
	format.Register(cmd)
	return cmd
}
