// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMessages: which texts count as messages.
func TestMessages(t *testing.T) {
	t.Parallel()
	for statement, want := range map[string][]string{
		`return fmt.Errorf("read %s: %w", name, err)`:         {`error "read %s: %w"`},
		`return status.Errorf(codes.Internal, "no %q", name)`: {`error "no %q"`},
		`return errors.New("set --node-name")`:                {`error "set --node-name"`},
		`return errors.New("claims.json is empty")`:           {`error "claims.json is empty"`},
		`return errors.New("it is empty")`:                    nil,
		`return fmt.Errorf("decide: %w", err)`:                nil,
		`return fmt.Errorf("read "+"%s "+hint, name)`:         {`error "read %s …"`},
		`log.Info("started", "version", v)`:                   {`log "started"`},
		`logger.V(4).Error(err, "not read", "node", n)`:       {`log "not read"`},
		`logger.Error(err, "not read", more...)`:              {`log "not read"`},
		`log.WarnContext(ctx, "late")`:                        {`log "late"`},
		`log.Warn(text, "error", err)`:                        nil,
		`http.Error(w, "no such page", 404)`:                  nil,
		`return err.Error()`:                                  nil,
	} {
		if diff := cmp.Diff(want, messagesOf(file(t, "func f() error { "+statement+" }"))); diff != "" {
			t.Errorf("%s:\n%s", statement, diff)
		}
	}
}

// TestDroppedMessages: a message may move to another package, and is dropped if no package has it.
func TestDroppedMessages(t *testing.T) {
	t.Parallel()
	before := of(t, map[string]string{
		"a/a.go": "package a\nfunc f() { log.Info(`one`); log.Info(`two`); log.Info(`two`) }", "b/b.go": "package b",
	})
	list := listMessages(before.sources)
	if want := "a\n  log \"one\"\n  log \"two\"\n"; list != want {
		t.Errorf("list %q, want %q", list, want)
	}
	after := of(t, map[string]string{"b/b.go": "package b\nfunc f() { log.Info(`one`); log.Info(`new`) }"})
	if diff := cmp.Diff([]string{`a: log "two"`}, dropped(list, after.sources)); diff != "" {
		t.Error(diff)
	}
}

// TestCompare: a figure above its limit fails, and so does what falls below a floor.
func TestCompare(t *testing.T) {
	t.Parallel()
	limits, err := parseLimits("# a comment\nlines of code 10 5\nfiles 2 1\n")
	if err != nil {
		t.Fatal(err)
	}
	code := func(value int) []figure { return []figure{{name: "lines of code", value: value}} }
	for name, c := range map[string]struct {
		figures                  []figure
		comments, lines, longest int
		want                     string
	}{
		"all at their limits": {code(5), 12, 88, 30, ""},
		"above":               {code(6), 12, 88, 30, "lines of code: 6, above the limit 5"},
		"without a limit":     {[]figure{{name: "heads", value: 1}}, 12, 88, 30, "heads: 1, above the limit 0"},
		"few comments":        {code(5), 11, 89, 30, "comments are less than 12 %"},
		"long functions":      {code(5), 12, 88, 31, "nine of ten functions have up to 31 lines"},
	} {
		s := row{size: size{code: c.lines, comments: c.comments}}
		err := compare(limits, &census{figures: c.figures, rows: []row{s}, p90: c.longest})
		if (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for _, wrong := range []string{"lines 1", "lines 1 x", "lines x 1"} {
		if _, err := parseLimits(wrong); err == nil {
			t.Errorf("limit %q is read", wrong)
		}
	}
}

// TestFileOfLimits: the file is as it is written.
func TestFileOfLimits(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(filepath.Join("..", "..", limitsFile))
	if err != nil {
		t.Fatal(err)
	}
	limits, err := parseLimits(string(content))
	if err != nil {
		t.Fatal(err)
	}
	var figures []figure
	for _, l := range limits {
		figures = append(figures, figure{name: l.name, value: l.value})
	}
	if diff := cmp.Diff(string(content), formatLimits(newLimits(limits, figures))); diff != "" {
		t.Errorf("make census UPDATE=limits writes:\n%s", diff)
	}
}
