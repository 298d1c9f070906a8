// SPDX-License-Identifier: Apache-2.0

// Command mutants tests the tests: each mutant is a fault in the code that decides and remembers, and the
// tests must fail with the mutant.
//
//	go run ./test/mutants                    # all mutants
//	go run ./test/mutants -run ^holders/     # mutants of some names
//
// The mutants are in tables, one file for each area:
//
//	mutant holders/given-not-compared
//	why an Allocate before the checkpoint still counts as later
//	file coordination/holders/record.go
//	test coordination/holders -run ^TestFind$
//	 	return slices.ContainsFunc(r.allocates, func(a Allocate) bool {
//	-		return a.Recorded == r.checkpoint.Identity && a.gives(d)
//	+		return a.gives(d)
//
// The last lines are the hunk of a diff, without line numbers. The original lines must occur exactly once in
// the file; an ordinary test checks all tables, so that a change of the code also moves its mutants. The line
// "test" has the package of the tests, and arguments of "go test". A mutant that changes nothing observable
// has the reason in a line "equivalent"; such a mutant must survive.
//
// Mutated files are passed to the compiler by "go test -overlay": the source tree stays unchanged. The exit
// code is 1 if a mutant survives without a reason, or if a table has an error, such as a mutant that does not
// compile, or a pattern without tests. The tests must pass without mutants ("make test").
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"time"
)

func main() {
	name := flag.String("run", "", "run only mutants with names that match this regular expression")
	jobs := flag.Int("jobs", 1, "number of mutants at a time")
	flag.Parse()
	if err := run(os.Stdout, *name, *jobs); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// run runs the mutants of matching names and writes a line for each. The working directory is the repository.
func run(w io.Writer, pattern string, jobs int) error {
	name, err := regexp.Compile(pattern)
	if err != nil {
		return fmt.Errorf("parse -run: %w", err)
	}
	mutants, err := readTables()
	if err != nil {
		return err
	}
	mutants = slices.DeleteFunc(mutants, func(m mutant) bool { return !name.MatchString(m.name) })
	if len(mutants) == 0 {
		return fmt.Errorf("no mutant has a name that matches %q", pattern)
	}
	scratch, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	began := time.Now()
	results := runAll(runner{scratch}, mutants, jobs, func(done int, r result) {
		fmt.Fprintf(w, "%3d/%d %-10s %6.1fs  %s: %s\n",
			done, len(mutants), r.outcome, r.took.Seconds(), r.mutant.name, r.mutant.why)
	})
	return summarize(w, results, time.Since(began))
}

// summarize writes the totals and the mutants that are not killed. It returns an error unless each mutant is
// killed or equivalent.
func summarize(w io.Writer, results []result, took time.Duration) error {
	count := map[outcome]int{}
	var faults []error
	for _, r := range results {
		count[r.outcome]++
		switch r.outcome {
		case killed:
		case equivalent:
			fmt.Fprintf(w, "equivalent: %s: %s\n", r.mutant.name, r.mutant.equivalent)
		default:
			faults = append(faults, fmt.Errorf("%s: %s: %w", r.outcome, r.mutant.name, r.err))
		}
	}
	fmt.Fprintf(w, "%d of %d killed, %d equivalent, %d survived, %d errors, in %s\n", count[killed],
		len(results), count[equivalent], count[survived], count[failed], took.Round(time.Second))
	return errors.Join(faults...)
}
