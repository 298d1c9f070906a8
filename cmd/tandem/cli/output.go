// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tandem-k8s/tandem/cmd/internal/plainflag"
)

// Output formats of all commands: for people, for programs.
const (
	AsTable = "table"
	AsJSON  = "json"
)

// Output is the flag -o of a command. The first of its formats is the default.
type Output struct {
	Format   string
	formats  []string
	verdicts Verdicts // of the text for people
}

// OneOf returns the flag with these formats.
func OneOf(formats ...string) Output { return Output{Format: formats[0], formats: formats} }

// Judging adds the verdicts of the text for people.
func (o Output) Judging(verdicts Verdicts) Output {
	o.verdicts = verdicts
	return o
}

// String implements pflag.Value.
func (o *Output) String() string { return o.Format }

// Set implements pflag.Value.
func (o *Output) Set(s string) error {
	if !slices.Contains(o.formats, s) {
		return fmt.Errorf("want %s", plainflag.List(o.formats))
	}
	o.Format = s
	return nil
}

// Type implements pflag.Value.
func (o *Output) Type() string { return "FORMAT" }

// Register adds the flag -o.
func (o *Output) Register(cmd *cobra.Command) {
	cmd.Flags().VarP(o, "output", "o", plainflag.List(o.formats))
	plainflag.Words(cmd.Flags(), "output", o.formats...)
	Complete(cmd, "output", Fixed(o.formats...))
}

// Write writes an answer as JSON, or a table for people.
func (o *Output) Write(cmd *cobra.Command, answer any, table func() []byte) error {
	text, err := o.Text(answer, table)
	if err != nil {
		return err
	}
	return o.Show(cmd, text)
}

// Text returns an answer as JSON, or a table for people.
func (o *Output) Text(answer any, table func() []byte) ([]byte, error) {
	if o.Format != AsJSON {
		return table(), nil
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(answer)
	return text.Bytes(), err
}

// Show writes a text in the format; a text for people is made for the terminal.
func (o *Output) Show(cmd *cobra.Command, text []byte) error {
	if o.Format == AsJSON {
		_, err := cmd.OutOrStdout().Write(text)
		return err
	}
	return screenOf(cmd).Show(text, o.verdicts)
}

// screenOf returns the screen of a command.
func screenOf(cmd *cobra.Command) Screen {
	return newScreen(cmd.OutOrStdout(), ColourMode(cmd), os.Getenv)
}

// Screen is the output of a command for people.
type Screen struct {
	Out    io.Writer
	Width  int  // of the terminal in columns; 0 for lines of any length
	Colour bool // colours, if Out is a [PrintableWriter], through which only this program controls a terminal
}

// newScreen returns the screen that out writes to, with colours by the mode and the environment.
func newScreen(out io.Writer, mode string, env func(string) string) Screen {
	s := Screen{Out: out}
	isTerminal := false
	if writer, ok := out.(*PrintableWriter); ok {
		if file, ok := writer.Terminal(); ok {
			isTerminal = true
			s.Width, _, _ = term.GetSize(int(file.Fd())) // 0 if unknown
		}
	}
	s.Colour = coloured(mode, isTerminal, env)
	return s
}

// Show writes a text. The words that judge are found in the text before it is folded, so that their colours
// do not depend on the width. Foreign characters are escaped first: an escape takes more room.
func (s Screen) Show(text []byte, verdicts Verdicts) error {
	text = []byte(PrintableLines(string(text)))
	out, ok := s.Out.(*PrintableWriter)
	if !ok || !s.Colour {
		_, err := s.Out.Write(fold(text, s.Width))
		return err
	}
	for _, part := range runs(fold(verdicts.shade(text), s.Width)) {
		out.Control(string(part.colour))
		_, err := io.WriteString(out, part.text)
		if part.colour != "" {
			out.Control(string(none))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
