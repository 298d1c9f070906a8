// SPDX-License-Identifier: Apache-2.0

// Package plainflag turns pflag's errors into plain words.
package plainflag

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// Error returns an error of pflag's parsing in plain words. For a value that is not a number or a boolean,
// pflag names the failed function of Go's library; Error names the expected value.
func Error(err error) error {
	var invalid *pflag.InvalidValueError
	var number *strconv.NumError
	if !errors.As(err, &invalid) || !errors.As(err, &number) {
		return err
	}
	said, _ := strings.CutSuffix(invalid.Error(), invalid.Unwrap().Error())
	return fmt.Errorf("%s%s", said, wanted(invalid.GetFlag().Value.Type(), number))
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
