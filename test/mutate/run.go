// SPDX-License-Identifier: Apache-2.0

package main

import (
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

	"golang.org/x/sync/errgroup"

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
	scratch, err := os.MkdirTemp("", "m")
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
		scratch: scratch, overlay: argument, jobs: max(o.jobs, 1), hang: o.hang, out: out,
		programs: map[string]*program{},
	}
	return o.tryAll(ctx, w, sites, chosen)
}

// tryAll runs the chosen sites that -run selects: all with the tests of their own package, then what has
// survived with those of its judges. The file has the results of each package as soon as they are known.
func (o *options) tryAll(
	ctx context.Context, w *workshop, sites map[string][]*site, chosen []*site,
) (*report, error) {
	own := map[string][]*site{}
	for _, s := range chosen {
		if o.run.MatchString(s.String()) {
			own[s.Package] = append(own[s.Package], s)
		}
	}
	r := &report{Seed: o.seed}
	for _, step := range []struct {
		title string
		names func(name string) []string
	}{
		{"own tests", func(name string) []string { return []string{name} }},
		{"with judges", judges},
	} {
		for _, name := range slices.Sorted(maps.Keys(own)) {
			if err := w.tryPackage(ctx, own[name], step.names(name)); err != nil {
				return nil, err
			}
			sum := r.put(name, len(sites[name]), own[name])
			fmt.Fprintf(w.out, "%s: %s: %d of %d dead, %d not reached, %.1f s each\n",
				step.title, name, sum.Dead, sum.Sampled, sum.NotReached, sum.Seconds)
			if err := o.write(r); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

// write writes the results into the file that -o names.
func (o *options) write(r *report) error {
	if o.file == "" {
		return nil
	}
	return r.write(o.file)
}

// tryPackage runs those sites of a package that are not dead yet with the tests of some packages, and writes
// a line for each that stays alive. All tests of all packages reach the variables of a package: judges do not
// run for these.
func (w *workshop) tryPackage(ctx context.Context, sites []*site, names []string) error {
	alive := slices.DeleteFunc(slices.Clone(sites), func(s *site) bool {
		return s.Outcome == dead || s.Function == variables && !slices.Contains(names, s.Package)
	})
	var mu sync.Mutex
	jobs, ctx := errgroup.WithContext(ctx)
	jobs.SetLimit(w.jobs)
	for _, s := range alive {
		jobs.Go(func() error {
			if err := w.try(ctx, s, names); err != nil || s.Outcome == dead {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintf(w.out, "%s: %s:%d %v\n", s.Outcome, s.File, s.Line, s.identity)
			return nil
		})
	}
	return jobs.Wait()
}
