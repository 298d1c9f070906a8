// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/internal/plainflag"
	"github.com/tandem-k8s/tandem/cmd/internal/terminal"
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
	verdicts terminal.Verdicts // of the text for people
}

// OneOf returns the flag with these formats.
func OneOf(formats ...string) Output { return Output{Format: formats[0], formats: formats} }

// Judging adds the verdicts of the text for people.
func (o Output) Judging(verdicts terminal.Verdicts) Output {
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
	plainflag.Output.Put(cmd.Flags(), "output")
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
	return Screen(cmd).Show(text, o.verdicts)
}

// Screen returns the screen of a command.
func Screen(cmd *cobra.Command) terminal.Screen {
	return terminal.NewScreen(cmd.OutOrStdout(), ColourMode(cmd), os.Getenv)
}
