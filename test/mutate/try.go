// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/test/mutate/mutation"
)

// The outcomes of a mutation.
const (
	dead       = "dead"        // a test fails
	survived   = "survived"    // tests reach the site, and pass
	notReached = "not reached" // by any test that was asked
)

// result is the outcome of a mutation.
type result struct {
	identity
	File    string `json:"file"`
	Line    int    `json:"line"`
	number  int
	Outcome string  `json:"outcome"`
	By      string  `json:"by,omitempty"` // the package and the test that fails
	Seconds float64 `json:"seconds"`      // of CPU time
}

// try runs the tests that reach a site, with its mutation: those of the own package, then of its judges.
func (w *workshop) try(ctx context.Context, s *site) (r result, err error) {
	r = result{identity: s.identity, File: s.file, Line: s.line, number: s.number, Outcome: notReached}
	for _, name := range append([]string{s.Package}, judges(s.Package)...) {
		p, err := w.program(ctx, name)
		if err != nil {
			return r, err
		}
		for _, tests := range p.batches(s) {
			r.Outcome = survived
			by, cpu, err := w.fails(ctx, p, s, tests)
			r.Seconds += cpu.Seconds()
			if err != nil {
				return r, err
			}
			if by != "" {
				r.Outcome, r.By = dead, by
				return r, nil
			}
		}
	}
	return r, nil
}

// batches returns the tests that reach a site, each batch for a process of its own: a mutation that a fast
// test detects does not wait for slow ones.
func (p *program) batches(s *site) (all [][]test) {
	limit, sum := time.Second, time.Duration(0)
	for _, t := range p.reaching(s) {
		if len(all) == 0 || sum+t.took > limit {
			all, sum = append(all, nil), 0
			limit *= 10
		}
		all[len(all)-1] = append(all[len(all)-1], t)
		sum += t.took
	}
	return all
}

func (p *program) reaching(s *site) (all []test) {
	if p == nil {
		return nil
	}
	for _, t := range p.tests {
		if t.sites[s.number] {
			all = append(all, t)
		}
	}
	return all
}

// failedTest matches the name of a test that fails.
var failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// fails runs tests with a mutation, and returns the one that fails, "" if none does.
func (w *workshop) fails(ctx context.Context, p *program, s *site, tests []test) (
	by string, cpu time.Duration, err error,
) {
	var names []string
	limit := w.hang
	for _, t := range tests {
		names = append(names, t.name)
		limit += 5 * t.took
	}
	active := fmt.Sprintf("%s=%d", mutation.Active, s.number)
	output, cpu, err := w.run(ctx, p, limit, []string{active}, only(names...))
	if err == nil {
		return "", cpu, nil
	}
	if exit := (*exec.ExitError)(nil); ctx.Err() != nil || !errors.As(err, &exit) {
		return "", cpu, fmt.Errorf("run the tests of %s: %w", p.folder, err)
	}
	return p.folder + " " + reason(output), cpu, nil
}

// reason returns the test that failed, or how the process ended without one.
func reason(output string) string {
	match := failedTest.FindStringSubmatch(output)
	switch {
	case strings.Contains(output, "panic: test timed out"):
		return "(time limit)"
	case match != nil:
		return match[1]
	default:
		return "(end of the process)"
	}
}
