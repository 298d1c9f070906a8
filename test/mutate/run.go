// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"go/token"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/test/mutate/mutation"
	"github.com/tandem-k8s/tandem/test/overlay"
)

// options are the flags of the command.
type options struct {
	number, least, jobs int
	seed                uint64
	hang                time.Duration
	run                 *regexp.Regexp
	file, against       string
}

// sample draws the sample from packages and runs it, package by package.
func (o *options) sample(ctx context.Context, out io.Writer, patterns []string) (*report, error) {
	fset := token.NewFileSet()
	all, err := load(fset, patterns)
	if err != nil {
		return nil, err
	}
	sites := map[string][]*site{}
	var every []*site
	for _, c := range all {
		sites[c.name] = find(fset, c)
		every = append(every, sites[c.name]...)
	}
	chosen := draw(every, o.number, o.least, o.seed)
	if len(chosen) >= mutation.Limit {
		return nil, fmt.Errorf("a sample has less than %d mutations", mutation.Limit)
	}
	scratch, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	if err := os.Chmod(scratch, 0o755); err != nil {
		return nil, err
	}
	argument, err := overlay.Write(scratch, rewrite(all, chosen))
	if err != nil {
		return nil, err
	}
	w := &workshop{
		scratch: scratch, overlay: argument, jobs: o.jobs, hang: o.hang, out: out,
		programs: map[string]*program{},
	}
	return o.tryAll(ctx, w, sites, chosen)
}

// tryAll runs the chosen sites of the packages that -run selects. The file has the results of each package as
// soon as they are known.
func (o *options) tryAll(
	ctx context.Context, w *workshop, sites map[string][]*site, chosen []*site,
) (*report, error) {
	r := &report{Seed: o.seed}
	own := map[string][]*site{}
	for _, s := range chosen {
		if o.run.MatchString(s.Package) {
			own[s.Package] = append(own[s.Package], s)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		results, err := w.tryPackage(ctx, own[name])
		if err != nil {
			return nil, err
		}
		sum := r.add(name, len(sites[name]), results)
		fmt.Fprintf(w.out, "%s: %d of %d dead, %d not reached, %.1f s each\n",
			name, sum.Dead, sum.Sampled, sum.NotReached, sum.Seconds)
		if o.file != "" {
			if err := r.write(o.file); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

// tryPackage runs the chosen sites of a package, and writes a line for each mutation that does not die.
func (w *workshop) tryPackage(ctx context.Context, sites []*site) (results []result, err error) {
	var mu sync.Mutex
	err = each(w.jobs, sites, func(s *site) error {
		one, err := w.try(ctx, s)
		mu.Lock()
		defer mu.Unlock()
		results = append(results, one)
		if one.Outcome != dead && err == nil {
			fmt.Fprintf(w.out, "%s: %s:%d %v\n", one.Outcome, one.File, one.Line, one.identity)
		}
		return err
	})
	slices.SortFunc(results, func(a, b result) int { return cmp.Compare(a.number, b.number) })
	return results, err
}
