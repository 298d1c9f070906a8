// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// test is the result of a test or subtest.
type test struct {
	Name    string `json:"name"`    // "plugins/gpu/amd TestAllocateGolden"
	Outcome string `json:"outcome"` // pass, fail or skip; "" without an end
	Said    string `json:"said,omitempty"`

	rows []string // rows in its attributes
}

// event is a line of "go test -json" (cmd/test2json). Attr events are of testing.T.Attr.
type event struct {
	Action, Package, Test, Output, Key, Value string
}

const module = "github.com/tandem-k8s/tandem/"

// readTests reads the results of all tests, in the order of their start. It ignores lines without JSON, such
// as output of the linker or of make.
func readTests(in io.Reader) ([]*test, error) {
	var tests []*test
	byName := map[string]*test{}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		if json.Unmarshal(line, &e) == nil && e.Test != "" {
			name := strings.TrimPrefix(e.Package, module) + " " + e.Test
			if byName[name] == nil {
				byName[name] = &test{Name: name}
				tests = append(tests, byName[name])
			}
			byName[name].add(e)
		}
		switch {
		case errors.Is(err, io.EOF):
			return tests, nil
		case err != nil:
			return nil, fmt.Errorf("read test results: %w", err)
		}
	}
}

// frame matches lines of the testing package itself.
var frame = regexp.MustCompile(`^\s*(===|---) `)

func (t *test) add(e event) {
	switch e.Action {
	case "pass", "fail", "skip":
		t.Outcome = e.Action
	case "attr":
		if e.Key == "parity" {
			t.rows = append(t.rows, e.Value)
		}
	case "output":
		if line := strings.TrimSpace(e.Output); line != "" && !frame.MatchString(line) {
			t.Said = line
		}
	}
}

// shows reports whether the test shows the row: by an attribute, or by the row's name between slashes in its
// own name. A comma or a blank may separate plugin and feature too; the testing package replaces blanks with
// underscores.
func (t *test) shows(row string) bool {
	if slices.Contains(t.rows, row) {
		return true
	}
	plugin, feature, _ := strings.Cut(row, "/")
	_, name, _ := strings.Cut(t.Name, "/")
	for _, separator := range []string{"/", ",", "_", ",_"} {
		if strings.Contains("/"+name+"/", "/"+plugin+separator+feature+"/") {
			return true
		}
	}
	return false
}
