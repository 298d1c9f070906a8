// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"

	"github.com/tandem-k8s/tandem/cmd/internal/picture"
)

// Output formats beside those of package cli: with every device, as a picture, as a page around the picture,
// as NCCL's topology file, as the objects that the DRA driver publishes.
const (
	asWide  = "wide"
	asSVG   = "svg"
	asHTML  = "html"
	asNCCL  = "nccl"
	asSlice = "resourceslices"
)

// Exit codes beside those of package cli: of plan and doctor; of doctor alone.
const (
	exitFound   = 3
	exitUnknown = 4
)

// isPicture reports whether a format is a picture.
func isPicture(format string) bool { return format == asSVG || format == asHTML }

// draw writes a node as a picture, or as a page around the picture.
func draw(format string, w io.Writer, n *picture.Node) error {
	drawn := n.SVG()
	if format == asHTML {
		var err error
		if drawn, err = (picture.Page{Title: n.Title, Node: n}).HTML(); err != nil {
			return err
		}
	}
	_, err := w.Write(drawn)
	return err
}
