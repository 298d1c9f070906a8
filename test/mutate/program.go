// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tandem-k8s/tandem/test/mutate/mutation"
	"github.com/tandem-k8s/tandem/test/overlay"
)

// program is the compiled test program of a package, with all mutations of the sample.
type program struct {
	file, folder string
	arguments    []string
	tests        []test // the fastest first
}

// test is a test function of a program.
type test struct {
	name  string
	took  time.Duration // on the clock
	cpu   time.Duration
	sites map[int]bool // that it reaches
}

// workshop compiles and runs test programs.
type workshop struct {
	scratch string
	overlay string // argument of the go command
	jobs    int
	hang    time.Duration // what a test with a mutation may take beside five times its time
	out     io.Writer     // for what a person should know

	runs     atomic.Int64
	mu       sync.Mutex // held while a program is compiled and surveyed
	programs map[string]*program
}

// program returns the program of a package, named with arguments, and nil if the package has no tests.
func (w *workshop) program(ctx context.Context, name string) (*program, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p, ok := w.programs[name]; ok {
		return p, nil
	}
	words := strings.Fields(name)
	p := &program{folder: words[0], arguments: words[1:]}
	p.file = filepath.Join(w.scratch, strings.ReplaceAll(p.folder, "/", "-")+".test")
	compile := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", tags, w.overlay, overlay.Link,
		"-o", p.file, "./"+p.folder)
	if output, err := compile.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile the tests of %s: %w\n%s", name, err, output)
	}
	if _, err := os.Stat(p.file); errors.Is(err, os.ErrNotExist) {
		p = nil
	} else if err := w.survey(ctx, p); err != nil {
		return nil, err
	}
	w.programs[name] = p
	return p, nil
}

// survey runs each test of a program without a mutation. A test that fails then, even when repeated, is left
// out.
func (w *workshop) survey(ctx context.Context, p *program) error {
	output, _, err := w.run(ctx, p, time.Minute, nil, "-test.list=^(Test|Fuzz|Example)")
	if err != nil {
		return fmt.Errorf("list the tests of %s: %w\n%s", p.folder, err, output)
	}
	var mu sync.Mutex
	var cpu time.Duration
	jobs, ctx := errgroup.WithContext(ctx)
	jobs.SetLimit(w.jobs)
	for name := range strings.FieldsSeq(output) {
		jobs.Go(func() error {
			t, err := w.measure(ctx, p, name)
			if err != nil && ctx.Err() == nil {
				t, err = w.measure(ctx, p, name)
			}
			mu.Lock()
			defer mu.Unlock()
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				fmt.Fprintf(w.out, "%s: %s is left out, it fails without a mutation: %v\n", p.folder, name, err)
				return nil
			}
			p.tests = append(p.tests, t)
			cpu += t.cpu
			return nil
		})
	}
	err = jobs.Wait()
	slices.SortFunc(p.tests, func(a, b test) int { return cmp.Compare(a.took, b.took) })
	fmt.Fprintf(w.out, "%s: %d tests, %.1f s\n", p.folder, len(p.tests), cpu.Seconds())
	return err
}

// measure runs a test without a mutation.
func (w *workshop) measure(ctx context.Context, p *program, name string) (test, error) {
	reached := filepath.Join(w.scratch, strings.ReplaceAll(p.folder, "/", "-")+name)
	defer os.RemoveAll(reached)
	began := time.Now()
	output, cpu, err := w.run(ctx, p, 10*time.Minute, []string{mutation.Reached + "=" + reached}, only(name))
	if err != nil {
		return test{}, fmt.Errorf("%w\n%s", err, output)
	}
	t := test{name, time.Since(began), cpu, map[int]bool{}}
	content, err := os.ReadFile(reached)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return test{}, err
	}
	for number := range strings.FieldsSeq(string(content)) {
		n, err := strconv.Atoi(number)
		if err != nil {
			return test{}, err
		}
		t.sites[n] = true
	}
	return t, nil
}

// only returns the argument that selects tests.
func only(names ...string) string { return "-test.run=^(" + strings.Join(names, "|") + ")$" }
