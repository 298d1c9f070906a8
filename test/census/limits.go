// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
)

// limit is what a figure was at commit c94aa67a, and must not exceed.
type limit struct {
	name          string
	before, value int
}

// What no limit may buy.
const (
	leastComments = 12 // percent of the lines with code or comment
	mostLines     = 30 // that nine of ten functions have
)

// limitsHead begins the file of limits.
const limitsHead = `# Each figure of the census, its value at commit c94aa67a, and its limit.
# "make lint" fails above a limit. Limits fall: "make census UPDATE=limits" writes the figures of now. A mend
# that raises one says why in its commit.
`

// parseLimits parses a file with the name of a figure and two numbers on each line.
func parseLimits(file string) (all []limit, err error) {
	for line := range strings.Lines(file) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		if len(words) < 3 {
			return nil, fmt.Errorf("parse limit %q: want a name and two numbers", line)
		}
		last := len(words) - 2
		l := limit{name: strings.Join(words[:last], " ")}
		if l.before, err = strconv.Atoi(words[last]); err != nil {
			return nil, fmt.Errorf("parse limit %s: %w", l.name, err)
		}
		if l.value, err = strconv.Atoi(words[last+1]); err != nil {
			return nil, fmt.Errorf("parse limit %s: %w", l.name, err)
		}
		all = append(all, l)
	}
	return all, nil
}

// newLimits returns figures as limits, with what the old limits know of the time before.
func newLimits(old []limit, figures []figure) (all []limit) {
	for _, f := range figures {
		all = append(all, limit{f.name, find(old, f.name).before, f.value})
	}
	return all
}

// find returns the limit of a figure; a figure without one must be 0.
func find(limits []limit, name string) limit {
	for _, l := range limits {
		if l.name == name {
			return l
		}
	}
	return limit{name: name}
}

// formatLimits returns the content of the file of limits.
func formatLimits(limits []limit) string {
	var text strings.Builder
	text.WriteString(limitsHead)
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, l := range limits {
		fmt.Fprintf(w, "%s\t%d\t%d\n", l.name, l.before, l.value)
	}
	w.Flush()
	return text.String()
}

// compare returns an error for each figure above its limit, and for what is on the wrong side of a floor.
func compare(limits []limit, c *census) error {
	var all []error
	for _, f := range c.figures {
		if l := find(limits, f.name); f.value > l.value {
			all = append(all, fmt.Errorf("%s: %d, above the limit %d in %s: make it smaller, or run "+
				"make census UPDATE=limits and say in the commit why", f.name, f.value, l.value, limitsFile))
		}
	}
	if s := c.rows[0].size; s.comments*100 < leastComments*(s.comments+s.code) {
		all = append(all, fmt.Errorf("comments are less than %d %% of %d lines with comment or code",
			leastComments, s.comments+s.code))
	}
	if c.p90 > mostLines {
		all = append(all, fmt.Errorf("nine of ten functions have up to %d lines, more than %d", c.p90, mostLines))
	}
	return errors.Join(all...)
}
