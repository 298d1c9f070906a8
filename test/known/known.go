// SPDX-License-Identifier: Apache-2.0

// Package known marks tests of faults that are known and not mended yet. A marked test has to fail with the
// fault; the mark fails when the test passes, so that whoever mends the fault removes the mark.
package known

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// variable names the test that a child process runs without its mark.
const variable = "TANDEM_KNOWN"

// RunVariable is a variable of the environment with the same value in all child processes of a test process,
// and without a value elsewhere: the first child can build programs for the others.
const RunVariable = "TANDEM_KNOWN_RUN"

// run identifies this process.
var run = fmt.Sprint(os.Getpid(), "-", time.Now().UnixNano())

// Fault marks the running test as one that fails with a known fault. The call comes before the work of the
// test.
//
// The test runs in a child process, in which the call returns. In the calling process the test is skipped,
// with the reason why, if the child process fails and the regular expression breach matches the output.
// Otherwise the test fails: the fault is mended, or the failure has another reason.
func Fault(t *testing.T, why, breach string) {
	t.Helper()
	if os.Getenv(variable) == t.Name() {
		return
	}
	pattern, err := regexp.Compile(breach)
	if err != nil {
		t.Fatalf("parse the breach: %v", err)
	}
	output, failure := runAlone(t)
	if err := judge(output, failure, pattern); err != nil {
		t.Fatalf("known fault (%s): %v", why, err)
	}
	t.Skipf("known fault: %s", why)
}

// judge returns an error unless a test has failed by itself, with a text that matches the breach.
func judge(output string, failure error, breach *regexp.Regexp) error {
	exit := (*exec.ExitError)(nil)
	switch {
	case failure == nil && strings.Contains(output, "no tests to run"):
		return errors.New("no test has run")
	case failure == nil && strings.Contains(output, "--- SKIP"):
		return fmt.Errorf("the test was skipped:\n%s", output)
	case failure == nil:
		return errors.New("the test passes: remove its mark")
	case !errors.As(failure, &exit):
		return fmt.Errorf("run the test: %w", failure)
	case strings.Contains(output, "panic: test timed out"):
		return fmt.Errorf("the test has no time left:\n%s", output)
	case !breach.MatchString(said(output)):
		return fmt.Errorf("the test fails, and its output does not match %q:\n%s", breach, output)
	default:
		return nil
	}
}

// said returns what a test says itself: an output without the lines that name tests.
func said(output string) string {
	var text strings.Builder
	for line := range strings.Lines(output) {
		begin := strings.TrimSpace(line)
		if !strings.HasPrefix(begin, "=== ") && !strings.HasPrefix(begin, "--- ") {
			text.WriteString(line)
		}
	}
	return text.String()
}

// runAlone runs the test in a child process without its mark.
func runAlone(t *testing.T) (output string, failure error) {
	t.Helper()
	var names []string
	for name := range strings.SplitSeq(t.Name(), "/") {
		names = append(names, "^"+regexp.QuoteMeta(name)+"$")
	}
	inputs := filepath.Join(t.TempDir(), "inputs")
	arguments := []string{
		"-test.run=" + strings.Join(names, "/"), "-test.v", "-test.testlogfile=" + inputs,
		fmt.Sprintf("-test.short=%t", testing.Short()),
	}
	if end, limited := t.Deadline(); limited {
		arguments = append(arguments, fmt.Sprintf("-test.timeout=%s", time.Until(end)*9/10))
	}
	child := exec.CommandContext(t.Context(), os.Args[0], arguments...)
	child.Env = append(os.Environ(), variable+"="+t.Name(), RunVariable+"="+run)
	out, err := child.CombinedOutput()
	declare(inputs)
	return string(out), err
}

// products is part of the path of each file that tests build. The go command learns of the sources in their
// place: a product changes with every run.
const products = "/bin/"

// declare tells the go command which files the child process has read, as if this process had read them: a
// change of one of these files voids a cached result.
func declare(inputs string) {
	content, _ := os.ReadFile(inputs) // none if the child has read nothing
	for line := range strings.Lines(string(content)) {
		kind, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.Contains(name, products) {
			continue
		}
		switch kind {
		case "open":
			if file, err := os.Open(name); err == nil {
				file.Close()
			}
		case "stat":
			_, _ = os.Stat(name)
		case "getenv":
			_ = os.Getenv(name)
		}
	}
}
