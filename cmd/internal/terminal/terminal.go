// SPDX-License-Identifier: Apache-2.0

// Package terminal shows the texts of commands to people: lines and tables are folded to the width of the
// terminal, and words that judge have a colour. Programs, which read from a pipe or a file, get the text as
// it is.
package terminal

import (
	"io"

	"golang.org/x/term"

	"github.com/tandem-k8s/tandem/cmd/internal/printable"
)

// Screen is the output of a command for people.
type Screen struct {
	Out    io.Writer
	Width  int  // of the terminal in columns; 0 for lines of any length
	Colour bool // colours, if Out is a [printable.Writer], through which only this program controls a terminal
}

// NewScreen returns the screen that out writes to, with colours by the mode and the environment.
func NewScreen(out io.Writer, mode string, env func(string) string) Screen {
	s := Screen{Out: out}
	isTerminal := false
	if writer, ok := out.(*printable.Writer); ok {
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
	text = []byte(printable.Lines(string(text)))
	out, ok := s.Out.(*printable.Writer)
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
