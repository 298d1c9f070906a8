// SPDX-License-Identifier: Apache-2.0

package pair

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Line is a line of a daemon's log. Missing fields are zero.
type Line struct {
	Daemon string `json:"-"`
	Text   string `json:"-"` // as written

	Time     time.Time `json:"time"`
	Level    string    `json:"level"`
	Message  string    `json:"msg"` // "allocated", "preferred" …
	Resource string    `json:"resource"`
	Devices  []string  `json:"devices"` // of "allocated", in the order of the answer
	Chosen   []string  `json:"chosen"`  // of "preferred"
	Reason   string    `json:"reason"`  // of "preferred": why
	Address  string    `json:"address"` // of "serving metrics and probes"
}

// Log has the log of both daemons.
type Log struct {
	mu    sync.Mutex
	lines []Line
	grown chan struct{} // closed when a line comes
}

func newLog() *Log { return &Log{grown: make(chan struct{})} }

// add adds a line of a daemon. A line without JSON, such as a panic, has only its text.
func (l *Log) add(daemon, text string) {
	line := Line{}
	if err := json.Unmarshal([]byte(text), &line); err != nil {
		line = Line{}
	}
	line.Daemon, line.Text = daemon, text
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	close(l.grown)
	l.grown = make(chan struct{})
}

// Len returns the number of lines, a position for Since and Wait.
func (l *Log) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lines)
}

// Since returns the lines after a position, and a channel that is closed when there are more.
func (l *Log) Since(position int) ([]Line, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines[position:len(l.lines):len(l.lines)], l.grown
}

// Wait waits until the lines after a position satisfy a condition, and returns them.
func (l *Log) Wait(ctx context.Context, position int, satisfied func([]Line) bool) ([]Line, error) {
	for {
		lines, grown := l.Since(position)
		if satisfied(lines) {
			return lines, nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return lines, fmt.Errorf("wait for the daemons' log: %w, have\n%s", context.Cause(ctx), Text(lines))
		}
	}
}

// Text returns the original lines, each with the name of its daemon.
func Text(lines []Line) string {
	var text strings.Builder
	for _, line := range lines {
		fmt.Fprintf(&text, "%s: %s\n", line.Daemon, line.Text)
	}
	return text.String()
}

// ToldBy reports whether a source of pod requests identified the container.
func (l Line) ToldBy(source string) bool {
	return strings.HasPrefix(l.Reason, "default/") && strings.Contains(l.Reason, "; told by "+source)
}
