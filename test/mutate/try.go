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
	File    string  `json:"file"` // below the repository
	Line    int     `json:"line"`
	Outcome string  `json:"outcome"`
	By      string  `json:"by,omitempty"` // the package and the test that fails
	Seconds float64 `json:"seconds"`      // of CPU time
}

// try runs the tests of packages that reach a site, with its mutation, until one fails.
func (w *workshop) try(ctx context.Context, s *site, names []string) error {
	for _, name := range names {
		p, err := w.program(ctx, name)
		if err != nil {
			return err
		}
		for _, tests := range p.batches(s) {
			by, cpu, err := w.fails(ctx, p, s, tests)
			if err != nil {
				return err
			}
			s.Seconds += cpu.Seconds()
			s.Outcome, s.By = survived, by
			if by != "" {
				s.Outcome = dead
				return nil
			}
		}
	}
	return nil
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

// slowest is the CPU time of the slowest test that judges another package.
const slowest = 5 * time.Second

func (p *program) reaching(s *site) (all []test) {
	if p == nil {
		return nil
	}
	for _, t := range p.tests {
		if t.sites[s.number] && (p.folder == s.Package || t.cpu <= slowest) {
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
