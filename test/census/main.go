// SPDX-License-Identifier: Apache-2.0

// Census counts the hand-written code of the repository, from its syntax trees: how much there is, and what
// makes it hard to hold in the head. "make lint" fails above a limit of limits.txt, and below a floor, which
// protects what has to stay.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
)

// The files of the census, below the root of the repository.
const (
	limitsFile   = "test/census/limits.txt"
	messagesFile = "test/census/messages.txt"
)

// options are the flags.
type options struct {
	root, update, names string
	check               bool
}

func main() {
	var o options
	flag.StringVar(&o.root, "root", ".", "count the code below this `folder`, such as a checkout of another commit")
	flag.BoolVar(&o.check, "check", false, "print only figures above their limits, and messages that are gone")
	flag.StringVar(&o.names, "names", "^structs", "list what is counted for figures that match this `expression`")
	flag.StringVar(&o.update, "update", "", "write the `file` of limits or messages as of now")
	flag.Parse()
	if err := o.run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "census:", err)
		os.Exit(1)
	}
}

// run counts, and does with the figures what the flags say. The files of the census are below the working
// directory.
func (o *options) run(out io.Writer) error {
	names, err := regexp.Compile(o.names)
	if err != nil {
		return fmt.Errorf("parse -names: %w", err)
	}
	r, err := readRepository(os.DirFS(o.root))
	if err != nil {
		return err
	}
	if o.update == "messages" {
		return os.WriteFile(messagesFile, []byte(listMessages(r.of(shipped))), 0o644)
	}
	content, err := os.ReadFile(limitsFile)
	if err != nil {
		return err
	}
	limits, err := parseLimits(string(content))
	if err != nil {
		return err
	}
	linked, err := load(o.root)
	if err != nil {
		return err
	}
	c := r.count(linked)
	switch {
	case o.update == "limits":
		return os.WriteFile(limitsFile, []byte(formatLimits(newLimits(limits, c.figures))), 0o644)
	case o.update != "":
		return fmt.Errorf("-update %s: want limits or messages", o.update)
	case o.check:
		return errors.Join(compare(limits, c), r.checkMessages(), o.checkProtected())
	}
	c.write(out, limits, names)
	return nil
}

// checkProtected returns an error for each protected test or file that the repository has no more.
func (o *options) checkProtected() error {
	list, err := os.ReadFile(protectedFile)
	if err != nil {
		return err
	}
	return checkProtected(os.DirFS(o.root), string(list))
}

// checkMessages returns an error for each message of the list that the code has no more.
func (r *repository) checkMessages() error {
	list, err := os.ReadFile(messagesFile)
	if err != nil {
		return err
	}
	var all []error
	for _, m := range dropped(string(list), r.of(shipped)) {
		all = append(all, fmt.Errorf("%s\n  is gone: the commit that drops it takes it off %s and says why",
			m, messagesFile))
	}
	return errors.Join(all...)
}
