// SPDX-License-Identifier: Apache-2.0

// Package plainflag has what the command lines of all programs share: plain words for pflag's errors, flags
// with a fixed list of words, and flags in groups.
package plainflag

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/coordination/spelling"
)

// Error returns an error of parsing a set in plain words. For a value that is not a number or a boolean,
// pflag names the failed function of Go's library; Error names the expected value. A misspelled flag, and a
// misspelled word of a flag with [Words], gets the nearest known one.
func Error(set *pflag.FlagSet, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	var number *strconv.NumError
	switch {
	case errors.As(err, &unknown):
		return withQuestion(err, spelling.Propose(similar(set, unknown.GetSpecifiedName())))
	case !errors.As(err, &invalid):
		return err
	case errors.As(err, &number):
		said, _ := strings.CutSuffix(invalid.Error(), invalid.Unwrap().Error())
		return fmt.Errorf("%s%s", said, wanted(invalid.GetFlag().Value.Type(), number))
	default:
		return withQuestion(err, question(invalid.GetFlag(), invalid.GetValue()))
	}
}

func withQuestion(err error, question string) error {
	if question == "" {
		return err
	}
	return fmt.Errorf("%w%s", err, question)
}

// similar returns the flags of the help page with similar names, with their dashes.
func similar(set *pflag.FlagSet, name string) []string {
	var names []string
	set.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	nearest := spelling.Nearest(name, names)
	for i := range nearest {
		nearest[i] = "--" + nearest[i]
	}
	return nearest
}

// wanted describes the values of a flag of a type.
func wanted(kind string, given *strconv.NumError) string {
	switch {
	case errors.Is(given, strconv.ErrRange):
		return "the number is too large"
	case kind == "bool":
		return "want true or false"
	case strings.HasPrefix(kind, "uint"):
		return "want a whole number, 0 or more"
	case strings.HasPrefix(kind, "int"):
		return "want a whole number"
	default:
		return "want a number"
	}
}
