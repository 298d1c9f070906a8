// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
)

// newText returns a text of one line.
func newText(line string) *cli.Text {
	var text cli.Text
	text.Line(line)
	return &text
}

// An unchanged result is shown once; a failure is reported once, and the next result is shown even if
// unchanged.
func TestWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answers := strings.Fields("a a b b !one !one !two b b a")
		const want = "a\nb\nb\na\n"
		start, asked := time.Now(), 0
		ctx, cancel := context.WithCancel(t.Context())
		look := func(context.Context) (*cli.Text, error) {
			if asked == len(answers) {
				cancel()
				return nil, errors.New("cancelled")
			}
			asked++
			if text, failed := strings.CutPrefix(answers[asked-1], "!"); failed {
				return nil, errors.New(text)
			}
			return newText(answers[asked-1]), nil
		}
		var out, problems bytes.Buffer
		if err := watchChanges(ctx, &problems, look, func(shown *cli.Text) error {
			out.WriteString(shown.String())
			return nil
		}); err != nil {
			t.Error(err)
		}
		if out.String() != want || problems.String() != "not up to date: one\nnot up to date: two\n" {
			t.Errorf("shown %q, want %q; told %q", out.String(), want, problems.String())
		}
		if took := time.Since(start); took != time.Duration(len(answers))*watchPause {
			t.Errorf("%d questions took %s", len(answers)+1, took)
		}
	})
}

// A failure of the first look, or of a write, ends the watch.
func TestWatchEnds(t *testing.T) {
	t.Parallel()
	away, full := errors.New("nobody answers"), errors.New("no space left")
	look := func(context.Context) (*cli.Text, error) { return newText("a"), nil }
	fails := func(context.Context) (*cli.Text, error) { return nil, away }
	if err := watchChanges(t.Context(), nil, fails, nil); !errors.Is(err, away) {
		t.Errorf("the first question fails: %v", err)
	}
	show := func(*cli.Text) error { return full }
	if err := watchChanges(t.Context(), nil, look, show); !errors.Is(err, full) {
		t.Errorf("nothing can be written: %v", err)
	}
}
