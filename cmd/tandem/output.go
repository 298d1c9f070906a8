// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/internal/picture"
	"github.com/tandem-k8s/tandem/cmd/internal/plainflag"
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
	format  string
	formats []string
}

func oneOf(formats ...string) output { return output{formats[0], formats} }

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

// write writes an answer as JSON or for people, folded for the terminal that w writes to.
func (o *output) write(w io.Writer, answer any, table func() []byte) error {
	if o.format == asJSON {
		return writeJSON(w, answer)
	}
	_, err := w.Write(fold(table(), columns(w)))
	return err
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

func writeJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}
