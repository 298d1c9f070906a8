// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/test/overlay"
)

// outcome is the outcome of the tests with a mutant.
type outcome string

const (
	killed     outcome = "killed"     // the tests fail
	equivalent outcome = "equivalent" // the tests pass, as the table says
	survived   outcome = "survived"   // the tests pass
	failed     outcome = "error"      // of the table
)

// result is the result of a mutant.
type result struct {
	mutant  mutant
	outcome outcome
	took    time.Duration
	err     error // nil if the mutant is killed or equivalent
}

// runAll runs mutants and reports each result as it comes.
func runAll(r runner, mutants []mutant, jobs int, report func(done int, r result)) (results []result) {
	var mu sync.Mutex
	var all sync.WaitGroup
	free := make(chan struct{}, max(jobs, 1))
	for _, m := range mutants {
		free <- struct{}{}
		all.Go(func() {
			one := r.run(m)
			mu.Lock()
			results = append(results, one)
			report(len(results), one)
			mu.Unlock()
			<-free
		})
	}
	all.Wait()
	return results
}

// runner runs tests with mutated files in a scratch folder.
type runner struct{ scratch string }

// run runs the tests of a mutant.
func (r runner) run(m mutant) result {
	began := time.Now()
	out, err := r.try(m)
	return result{m, out, time.Since(began), err}
}

func (r runner) try(m mutant) (outcome, error) {
	argument, err := r.overlay(m)
	if err != nil {
		return failed, err
	}
	output, err := goTest(m, argument)
	switch {
	case !haveRun(output, err):
		return failed, fmt.Errorf("tests not run: %w\n%s", err, output)
	case err != nil && m.equivalent != "":
		return failed, errors.New("the table calls the mutant equivalent, and tests fail with the mutant")
	case err != nil:
		return killed, nil
	case m.equivalent != "":
		return equivalent, nil
	default:
		return survived, errors.New("the tests pass")
	}
}

// notRun are parts of the output of "go test" without a result of the tests.
var notRun = []string{
	"[no tests to run]", "[build failed]", "[setup failed]", "testing: invalid regexp",
	"flag provided but not defined",
}

// haveRun reports whether tests have run, by the output and the error of "go test".
func haveRun(output string, err error) bool {
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return false // go test has not started, as in a folder that does not exist
	}
	return !slices.ContainsFunc(notRun, func(part string) bool { return strings.Contains(output, part) })
}

// overlay writes the mutated file, and returns the argument of the go command with which it replaces the
// original.
func (r runner) overlay(m mutant) (string, error) {
	path, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	mutated, err := m.apply(string(content))
	if err != nil {
		return "", err
	}
	folder := filepath.Join(r.scratch, m.name)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	return overlay.Write(folder, map[string][]byte{path: []byte(mutated)})
}

// goTest runs the tests of a mutant in their module, and returns the output.
func goTest(m mutant, replace string) (output string, err error) {
	command := exec.Command("go", append([]string{
		"test", "-count=1", "-failfast", "-vet=off", "-short", "-timeout=10m", replace, overlay.Link, ".",
	}, m.arguments...)...)
	command.Dir = filepath.FromSlash(m.folder)
	out, err := command.CombinedOutput()
	return string(out), err
}
