// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/internal/picture"
	"github.com/tandem-k8s/tandem/cmd/internal/plainflag"
	"github.com/tandem-k8s/tandem/cmd/tandem/terminal"
)

// Output formats: for people, with every device, for programs, as a picture, as a page around the picture, as
// NCCL's topology file, as the objects that the DRA driver publishes.
const (
	asTable = "table"
	asWide  = "wide"
	asJSON  = "json"
	asSVG   = "svg"
	asHTML  = "html"
	asNCCL  = "nccl"
	asSlice = "resourceslices"
)

// output is the flag -o of a command. The first of its formats is the default.
type output struct {
	format   string
	formats  []string
	verdicts terminal.Verdicts // of the text for people
}

func oneOf(formats ...string) output { return output{format: formats[0], formats: formats} }

// judging adds the verdicts of the text for people.
func (o output) judging(verdicts terminal.Verdicts) output {
	o.verdicts = verdicts
	return o
}

// String implements pflag.Value.
func (o *output) String() string { return o.format }

// Set implements pflag.Value.
func (o *output) Set(s string) error {
	if !slices.Contains(o.formats, s) {
		return fmt.Errorf("want %s", plainflag.List(o.formats))
	}
	o.format = s
	return nil
}

// Type implements pflag.Value.
func (o *output) Type() string { return "FORMAT" }

// register adds the flag -o.
func (o *output) register(cmd *cobra.Command) {
	cmd.Flags().VarP(o, "output", "o", plainflag.List(o.formats))
	plainflag.Words(cmd.Flags(), "output", o.formats...)
	plainflag.Output.Put(cmd.Flags(), "output")
	complete(cmd, "output", fixed(o.formats...))
}

// write writes an answer as JSON, or a table for people.
func (o *output) write(cmd *cobra.Command, answer any, table func() []byte) error {
	text, err := o.text(answer, table)
	if err != nil {
		return err
	}
	return o.show(cmd, text)
}

// text returns an answer as JSON, or a table for people.
func (o *output) text(answer any, table func() []byte) ([]byte, error) {
	if o.format != asJSON {
		return table(), nil
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(answer)
	return text.Bytes(), err
}

// show writes a text in the format; a text for people is made for the terminal.
func (o *output) show(cmd *cobra.Command, text []byte) error {
	if o.format == asJSON {
		_, err := cmd.OutOrStdout().Write(text)
		return err
	}
	return screen(cmd).Show(text, o.verdicts)
}

// screen returns the screen of a command.
func screen(cmd *cobra.Command) terminal.Screen {
	return terminal.NewScreen(cmd.OutOrStdout(), colourMode(cmd), os.Getenv)
}

// draws reports whether the format is a picture.
func (o *output) draws() bool { return o.format == asSVG || o.format == asHTML }

// draw writes a node as a picture, or as a page around the picture.
func (o *output) draw(w io.Writer, n *picture.Node) error {
	drawn := n.SVG()
	if o.format == asHTML {
		var err error
		if drawn, err = (picture.Page{Title: n.Title, Node: n}).HTML(); err != nil {
			return err
		}
	}
	_, err := w.Write(drawn)
	return err
}
