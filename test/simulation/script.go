// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/test/simulation/seeds"
)

// Script is a node's life, event by event.
type Script struct {
	Head    []string // comments
	Promise string   // that the script is about
	Known   string   // the fault that breaks the promise, until it is mended; "" for none
	Node    Options
	Events  []Event
}

// Beginnings of the lines of a script that are no events.
const (
	commentLine = "#"
	promiseLine = "promise: "
	knownLine   = "known: "
	nodeLine    = "node: "
)

// ParseScript parses the text of a script.
func ParseScript(text string) (script Script, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if err := script.add(line); err != nil {
			return script, err
		}
	}
	return script, nil
}

// add adds a line.
func (c *Script) add(line string) error {
	switch {
	case strings.HasPrefix(line, commentLine):
		c.Head = append(c.Head, line)
	case strings.HasPrefix(line, promiseLine):
		c.Promise = strings.TrimPrefix(line, promiseLine)
	case strings.HasPrefix(line, knownLine):
		c.Known = strings.TrimPrefix(line, knownLine)
	case strings.HasPrefix(line, nodeLine):
		if err := json.Unmarshal([]byte(strings.TrimPrefix(line, nodeLine)), &c.Node); err != nil {
			return fmt.Errorf("parse %q: %w", line, err)
		}
	default:
		e, err := parseEvent(line)
		if err != nil {
			return err
		}
		c.Events = append(c.Events, e)
	}
	return nil
}

// String returns the text of the script.
func (c Script) String() string {
	lines := slices.Clone(c.Head)
	if c.Promise != "" {
		lines = append(lines, promiseLine+c.Promise)
	}
	if c.Known != "" {
		lines = append(lines, knownLine+c.Known)
	}
	options, _ := json.Marshal(c.Node) // cannot fail: texts, numbers and Booleans
	lines = append(lines, nodeLine+string(options))
	for _, e := range c.Events {
		lines = append(lines, e.String())
	}
	return strings.Join(lines, "\n") + "\n"
}

// Play runs a script until its end or a violation, in a bubble of package synctest. The directory must be
// empty.
func Play(dir string, script Script, log *slog.Logger) (*seeds.Report, error) {
	node, err := newNode(dir, 0, script.Node, log)
	if err != nil {
		return nil, err
	}
	s := newSimulation(node, 0)
	err = s.whole(func() error {
		for _, e := range script.Events {
			s.steps++
			if err := s.do(e); err != nil {
				return fmt.Errorf("%s: %w\n%s", e, err, &s.story)
			}
		}
		return nil
	})
	return s.report(), err
}

// script returns the events until now.
func (s *Simulation) script() Script {
	return Script{Promise: s.report().Breaks(), Node: s.options, Events: s.events}
}
