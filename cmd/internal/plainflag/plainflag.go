// SPDX-License-Identifier: Apache-2.0

// Package plainflag says in plain words what is wrong with a command line.
package plainflag

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// Error is an error of pflag's parsing. Where a value is no number, or no truth value, pflag's says what a
// function of Go's library cannot parse; this one says what is wanted.
func Error(err error) error {
	var invalid *pflag.InvalidValueError
	var number *strconv.NumError
	if !errors.As(err, &invalid) || !errors.As(err, &number) {
		return err
	}
	said, _ := strings.CutSuffix(invalid.Error(), invalid.Unwrap().Error())
	return fmt.Errorf("%s%s", said, wanted(invalid.GetFlag().Value.Type(), number))
}

// wanted is what a flag of a type wants.
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
