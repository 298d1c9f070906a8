// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"
)

func main() {
	var o options
	flag.IntVar(&o.number, "n", 2000, "about how many mutations the sample has, over all packages")
	flag.IntVar(&o.least, "least", 10, "how many mutations each package has, if it has as many sites")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the sample")
	flag.IntVar(&o.jobs, "jobs", 1, "number of mutations at a time")
	flag.DurationVar(&o.hang, "hang", 10*time.Second, "time limit of a test, beside five times its own")
	flag.StringVar(&o.file, "o", "", "write the results to this file, as JSON")
	flag.StringVar(&o.against, "against", "", "fail if the results in this file are better")
	name := flag.String("run", "", "run only mutations that match this regular expression, such as ^topology")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := o.main(ctx, os.Stdout, *name)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// main runs the sample in the working directory, which is the repository.
func (o *options) main(ctx context.Context, out io.Writer, name string) (err error) {
	if o.run, err = regexp.Compile(name); err != nil {
		return fmt.Errorf("parse -run: %w", err)
	}
	var before *report
	if o.against != "" {
		if before, err = read(o.against); err != nil { // before the hours that the sample takes
			return err
		}
	}
	now, err := o.sample(ctx, out, patterns)
	if err != nil {
		return err
	}
	now.table(out)
	if before == nil {
		return nil
	}
	if before.Seed != now.Seed {
		return errors.New("the results in -against are of another seed")
	}
	return compare(out, before, now)
}
